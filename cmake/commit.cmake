# Writes OUT, a header with the commit of SOURCE, when it is another than the one that is there: cmake -DSOURCE=.. -DOUT=.. -P.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty OUTPUT_VARIABLE commit ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "namespace diapason {\ninline constexpr char kCommit[] = \"${commit}\";\n}\n" @ONLY)
