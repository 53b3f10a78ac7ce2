"""From operators to tensorized programs: mapping, realisation and schedules through TVM."""
