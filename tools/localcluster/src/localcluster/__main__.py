"""`python -m localcluster`: the commands of `raybus cluster`."""

from localcluster.cli import main

main()
