# Reference runs still to make, the worthiest first. Finished runs are skipped. Run lines of it, or all, at the lowest
# priority from the repository root: nice -n 19 sh results/todo.sh; then pflbench pack. Delete lines that are finished.
# Hours are core-hours on an AMD EPYC of November 2026.

# FedEC's alpha: 28 min a trial; 0.1, 1 and 5 are stored. Extend a grid whose best value is at its border, and write the best
# value into benchmarks/fedec/table2.toml before FedEC's runs below. FedEC-wo's runs need no alpha.
pflbench tune --suite fedec-table2 --method fedec --column cifar10-100-2 --profile quick --rounds 20 --seeds 41 --grid alpha=0.01,0.1,1,5,10

# FedEC's method at full protocol, 3 to 7 h a run. Look at seed 42 before 43 and 44.
pflbench run --suite fedec-table2 --column cifar10-100-2 --method fedec --method fedec-wo --seeds 42 --checkpoint-every 10m
pflbench run --suite fedec-table2 --column cifar10-100-2 --method fedec --method fedec-wo --seeds 43,44 --checkpoint-every 10m

# Reptile and FO-MAML in CAFeMe's setting.
pflbench run --suite meta-learning --column rmnist-shards --method reptile --method fo-maml --seeds 0-2 --checkpoint-every 10m

# CAFeMe's CIFAR-10 Shards: 30 to 44 h.
pflbench run --suite cafeme-table1 --column cifar10-shards --method cafeme --method per-fedavg --method fedrep-averaged --method ditto --seeds 0-2 --evaluate-every 50 --checkpoint-every 10m
pflbench run --suite cafeme-table1 --column cifar10-shards --method fedavg --method ifca --seeds 0-2 --evaluate-every 50 --checkpoint-every 10m

# A suspect of pFedVEM's Table 1: pFedBayes with 10,000 steps; 34 min and more.
pflbench run --suite pfedvem-differs --column cifar10-5000 --method pfedbayes-fast --seeds 42 --evaluate-every 5

# CAFeMe's Table 2, FEMNIST, on the 300 writers of LEAF's smaller sample: 8.7 h.
pflbench run --suite cafeme-table2 --column femnist --method cafeme --method fedrep-averaged --method ditto --method per-fedavg --seeds 0-2 --checkpoint-every 10m

# FedEC's Table 2, CIFAR-10 (100, 2), other methods: 40, 60 and 75 min a run.
pflbench run --suite fedec-table2 --column cifar10-100-2 --method fedrep --method pfedme --method local --seeds 42-44 --checkpoint-every 10m

# CAFeMe's CIFAR-10 Dirichlet: as long as CIFAR-10 Shards.
pflbench run --suite cafeme-table1 --column cifar10-dirichlet --method cafeme --method per-fedavg --method fedrep-averaged --method ditto --method fedavg --method ifca --seeds 0-2 --checkpoint-every 10m
