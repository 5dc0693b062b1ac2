#include "ui/report.h"

#include <openssl/sha.h>

#include <ostream>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/replace_file.h"
#include "ui/assets.h"

namespace diapason {
namespace {

// Begins every report, so that writing one again is told from overwriting something else.
constexpr char kMark[] = "<!doctype html><!-- diapason report -->";

std::string Hash(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::StrCat("'sha256-",
                      absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(digest), sizeof digest)), "'");
}

}  // namespace

std::string EmbeddedJson(const Json& json) {
  const std::string text = JsonText(json, {.ascii = true});
  return absl::StrReplaceAll(text, {{"<", "\\u003c"}});  // inside strings alone can there be one
}

std::string ReportHtml(const Json& data) {
  std::string scripts, styles, script_hashes, style_hashes, page;
  for (const PageAsset& asset : PageAssets()) {
    if (asset.name == "index.html") {
      page = std::string(asset.text);
    } else if (asset.type.substr(0, 8) == "text/css") {
      absl::StrAppend(&styles, "<style>", std::string(asset.text), "</style>\n");
      absl::StrAppend(&style_hashes, " ", Hash(asset.text));
    } else {
      absl::StrAppend(&scripts, "<script>", std::string(asset.text), "</script>\n");
      absl::StrAppend(&script_hashes, " ", Hash(asset.text));
    }
  }
  const std::string policy =
      absl::StrCat("default-src 'none'; script-src", script_hashes, "; style-src", style_hashes,
                   "; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'");
  const size_t head = page.find("<!-- head -->"), tail = page.find("<!-- scripts -->"), end = page.find("</body>");
  const size_t begin = page.find("<html");
  DIAPASON_CHECK(head != std::string::npos && tail != std::string::npos && end != std::string::npos && begin < head);
  return absl::StrCat(kMark, "\n", page.substr(begin, head - begin),
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"", policy, "\">\n", styles,
                      page.substr(page.find("<!-- /head -->"), tail - page.find("<!-- /head -->")),
                      "<script type=\"application/json\" id=\"diapason-data\">", EmbeddedJson(data), "</script>\n",
                      scripts, page.substr(end));
}

absl::Status WriteReport(const std::string& path, const std::string& html) {
  RETURN_IF_ERROR(CheckReplaceable(path, "report of this program", {kMark}));
  return ReplaceFile(path, [&](std::ostream& out) {
    out << html;
    return absl::OkStatus();
  });
}

}  // namespace diapason
