"""Ranks the nodes of a graph with networkx and groups them with leidenalg, and prints how long each took without building the graph."""
import json
import sys
import time
from collections import Counter
from importlib.metadata import version

import igraph
import leidenalg
import networkx

with open(sys.argv[1]) as lines:
    count = int(next(lines))
    weights = Counter(tuple(map(int, line.split())) for line in lines)
weights = {ends: weight for ends, weight in weights.items() if ends[0] != ends[1]}

graph = networkx.DiGraph()
graph.add_weighted_edges_from((one, other, weight) for (one, other), weight in weights.items())
# Documents without edges are walked to as well.
graph.add_nodes_from(-number for number in range(1, count - graph.number_of_nodes() + 1))
begun = time.monotonic()
scores = networkx.pagerank(graph, alpha=0.85, tol=1e-9 / count, max_iter=500)
page_rank_seconds = time.monotonic() - begun

both = Counter()
for (one, other), weight in weights.items():
    both[min(one, other), max(one, other)] += weight
numbers = {node: number for number, node in enumerate(sorted({node for ends in both for node in ends}))}
undirected = igraph.Graph(n=len(numbers), edges=[(numbers[one], numbers[other]) for one, other in both])
undirected.es["weight"] = list(both.values())
begun = time.monotonic()
partition = leidenalg.find_partition(undirected, leidenalg.ModularityVertexPartition, weights="weight", seed=1)
communities_seconds = time.monotonic() - begun

best = dict(sorted(scores.items(), key=lambda score: -score[1])[:5000])
print(json.dumps({
    "networkx": version("networkx"),
    "leidenalg": version("leidenalg"),
    "page_rank_seconds": page_rank_seconds,
    "scores": {str(node): score for node, score in best.items()},
    "communities_seconds": communities_seconds,
    "modularity": undirected.modularity(partition.membership, weights="weight"),
}))
