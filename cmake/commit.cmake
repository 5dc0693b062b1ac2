# Writes OUT, a header with the commit of SOURCE, when it is another than the one that is there: cmake -DSOURCE=.. -DOUT=.. -P.
# The environment variable DIAPASON_COMMIT is the commit of sources without git's folder.
set(commit "$ENV{DIAPASON_COMMIT}")
if(commit STREQUAL "")
  execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "namespace diapason {\ninline constexpr char kCommit[] = \"${commit}\";\n}\n" @ONLY)
