# Writes the symbols that a shared library exports, one per line: cmake -DNM=… -DLIBRARY=… -DOUT=… -P exported.cmake
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "(@[^ \n]*)? [^\n]*\n" "\n" names "${lines}")
file(WRITE ${OUT} "${names}")
