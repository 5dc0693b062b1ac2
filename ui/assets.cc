#include "ui/assets.h"

// The bytes of `file` between two symbols.
#define DIAPASON_EMBED(name, file)                                                                        \
  __asm__(".section .rodata\n.global diapason_page_" #name "\ndiapason_page_" #name ":\n.incbin \"" file  \
          "\"\n.global diapason_page_" #name "_end\ndiapason_page_" #name "_end:\n.byte 0\n.previous\n"); \
  extern "C" const char diapason_page_##name[], diapason_page_##name##_end[]

DIAPASON_EMBED(index, DIAPASON_PAGE "/index.html");
DIAPASON_EMBED(style, DIAPASON_PAGE "/page.css");
DIAPASON_EMBED(chart, DIAPASON_CHART_JS);
DIAPASON_EMBED(model, DIAPASON_PAGE "/model.js");
DIAPASON_EMBED(draw, DIAPASON_PAGE "/draw.js");
DIAPASON_EMBED(tables, DIAPASON_PAGE "/tables.js");
DIAPASON_EMBED(views, DIAPASON_PAGE "/views.js");
DIAPASON_EMBED(compare, DIAPASON_PAGE "/compare.js");
DIAPASON_EMBED(service, DIAPASON_PAGE "/service.js");
DIAPASON_EMBED(live, DIAPASON_PAGE "/live.js");
DIAPASON_EMBED(main, DIAPASON_PAGE "/main.js");

#undef DIAPASON_EMBED
#define DIAPASON_TEXT(name) \
  std::string_view(diapason_page_##name, static_cast<size_t>(diapason_page_##name##_end - diapason_page_##name))

namespace diapason {

const std::vector<PageAsset>& PageAssets() {
  static constexpr char kScript[] = "text/javascript; charset=utf-8";
  static const std::vector<PageAsset> assets = {
      {"index.html", "text/html; charset=utf-8", DIAPASON_TEXT(index)},
      {"page.css", "text/css; charset=utf-8", DIAPASON_TEXT(style)},
      {"chart.js", kScript, DIAPASON_TEXT(chart)},
      {"model.js", kScript, DIAPASON_TEXT(model)},
      {"draw.js", kScript, DIAPASON_TEXT(draw)},
      {"tables.js", kScript, DIAPASON_TEXT(tables)},
      {"views.js", kScript, DIAPASON_TEXT(views)},
      {"compare.js", kScript, DIAPASON_TEXT(compare)},
      {"service.js", kScript, DIAPASON_TEXT(service)},
      {"live.js", kScript, DIAPASON_TEXT(live)},
      {"main.js", kScript, DIAPASON_TEXT(main)},
  };
  return assets;
}

}  // namespace diapason
