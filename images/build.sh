#!/usr/bin/env bash
# Build a node's image and print its size:
#
#     images/build.sh [amd64|arm64]       (makes edgebed-node:amd64 or edgebed-node:arm64)
#
# Without an argument, for the Docker Engine's own architecture: then it is edgebed-node, too, which runs are made from.
# BASE is the image to build upon, if not the Dockerfile's own. PIP is the pip that fetches the wheels, configured as it
# is; the build itself reaches for nothing but the base.
set -euo pipefail
cd "$(dirname "$0")/.."
own=$(docker version --format '{{.Server.Arch}}')
architecture=${1:-$own}
case $architecture in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) echo "images/build.sh: there is no image for $architecture: torch comes for amd64 and arm64 only" >&2; exit 2 ;;
esac
${PIP:-python3 -m pip} download --quiet --no-deps --only-binary=:all: --dest build/wheels \
    --implementation cp --python-version 3.11 --platform "manylinux_2_28_$machine" --platform "manylinux2014_$machine" \
    --requirement "images/requirements-$machine.txt" || {
    echo "images/build.sh: pip found no wheel for $machine (docs/images.md, \"What pip must find\")" >&2
    exit 1
}
docker build --platform "linux/$architecture" --network none ${BASE:+--build-arg "BASE=$BASE"} \
    --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels \
    --file images/node/Dockerfile --tag "edgebed-node:$architecture" .
if [ "$architecture" = "$own" ]; then
    docker tag "edgebed-node:$architecture" edgebed-node
fi
docker image inspect --format "edgebed-node:$architecture {{.Size}} bytes" "edgebed-node:$architecture"
