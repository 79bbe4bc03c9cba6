"""Running RunSpecs somewhere: building what they name, in this process or in single-threaded workers."""
