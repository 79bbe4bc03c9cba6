"""Files of several datasets: IDX, CIFAR's batches, spreadsheets."""
