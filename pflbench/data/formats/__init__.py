"""What datasets read files with: as they are published, and CIFAR's archives."""
