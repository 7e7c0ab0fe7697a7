"""Where the memory of a step went: every byte of it by name, up to what NVML reported."""
