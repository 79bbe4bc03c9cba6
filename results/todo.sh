# Reference runs still to make, the worthiest first. Finished runs are skipped. Run lines of it, or all, at the lowest
# priority from the repository root: nice -n 19 sh results/todo.sh; then pflbench pack. Delete lines that are finished.
# Hours are core-hours on an AMD EPYC of November 2026.

# FedEC with its best alpha, 0.1: the full protocol, about 4.5 h, and three runs of quick (14, 12, 27 min with alpha 1). With them write
# fedec.alpha = 0.1, tuned, into benchmarks/fedec/table2.toml, and delete --set here. FedEC-wo's seed 42 took 3.6 h.
pflbench run --suite fedec-table2 --column cifar10-100-2 --method fedec --seeds 42 --set fedec.alpha=0.1 --checkpoint-every 10m
pflbench run --suite fedec-table2 --profile quick --column cifar10-100-2 --method fedec --set fedec.alpha=0.1
pflbench run --suite fedec-settings --profile quick --column cifar10-100-2-plain --method fedec --set fedec.alpha=0.1
pflbench run --suite fedec-fig2 --profile quick --method fedec --set fedec.alpha=0.1

# Look at seed 42 before these are trained.
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
