"""The outside systems of the campaign `probes`: a small server of ours, and real registries on loopback.

server.py       ours: the part of GitHub's API that `gh` and `standfast.actions.github` use, and payments by key
kubernetes.py   ours: the part of Kubernetes' API that `kubectl apply` of a ConfigMap uses
late.py         ours: a proxy that makes a real server late
scenes.py      one scene for each known action: its command, its requirements, and the oracle that counts it
registries.py   real servers: git over HTTP, verdaccio, pypiserver, Debian's docker-registry, a docker daemon
table.py        the results of each scene, and the table of docs/concepts/actions.md that is made of them
"""
