"""The encoders of the `ssl` family, one file each."""
