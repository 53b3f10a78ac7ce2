"""A complete accelerator around an array core: scratchpads, DMA, command queues, accumulator memory, store path."""
