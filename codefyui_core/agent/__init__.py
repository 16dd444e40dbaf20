"""The agent: dials the control plane, spools what its runs report, delivers it."""
