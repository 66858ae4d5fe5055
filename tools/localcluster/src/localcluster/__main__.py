"""`python -m localcluster`: the same commands as `raybus cluster`."""

from localcluster.cli import main

main()
