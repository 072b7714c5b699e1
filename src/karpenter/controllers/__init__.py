"""The shell: one module per controller. They look, ask the pure rooms what to do, and carry it out."""
