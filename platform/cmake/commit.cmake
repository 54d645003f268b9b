# cmake -DSOURCE=... -DHEADER=... -P commit.cmake: writes the commit that SOURCE is at, where it has changed. A source archive has it in the file COMMIT.
cmake_minimum_required(VERSION 3.25)  # else quotes and ends of lines are read as CMake 2 did
execute_process(COMMAND git -c safe.directory=* -C ${SOURCE} describe --always --dirty=+ --abbrev=10 --exclude=*
                OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT commit AND EXISTS ${SOURCE}/COMMIT)
  file(STRINGS ${SOURCE}/COMMIT commit LIMIT_COUNT 1)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define OCTAVO_COMMIT \"@commit@\"\n" @ONLY)
