# make demo: set up and run the main job. make test: set up and pass the tests. make lint: what CI checks before them.
PYTHON ?= python3
VENV   ?= .venv
RUN    := $(VENV)/bin
STAMP  := $(VENV)/.celosia-installed

.PHONY: demo test test-slow lint clean

demo: $(STAMP)
	$(RUN)/celosia explore examples/resnet18.toml --out runs/resnet18 --workers 2 --resume

test: $(STAMP)
	$(RUN)/python -m pytest -n 2

test-slow: $(STAMP)
	$(RUN)/python -m pytest -n 2 -m ''

lint: $(STAMP)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

$(STAMP): pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(0 if (3, 10) <= sys.version_info[:2] <= (3, 13) else 'Celosia needs Python 3.10 to 3.13, not ' + sys.version.split()[0] + '; try make PYTHON=python3.11')"
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	if command -v g++ >/dev/null || command -v clang++ >/dev/null || command -v c++ >/dev/null || test -n "$$CELOSIA_CXX"; \
	  then $(RUN)/python -m pip install --quiet --editable '.[dev]'; \
	  else $(RUN)/python -m pip install --quiet --editable '.[dev,zig]'; fi
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info runs
