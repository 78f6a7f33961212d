export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1
cmake --build build/dev --target test_$1 2>&1 | grep -E "error|warning|FAILED" -A5| head -30; ctest --preset dev -R "^$1\$" --output-on-failure 2>&1 | tail -${2:-40}
