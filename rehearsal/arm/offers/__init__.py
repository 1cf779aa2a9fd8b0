"""What the emulated Azure sells: sizes by region, quota, prices."""
