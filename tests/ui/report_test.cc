// The page in one file.
#include "ui/report.h"

#include <string>

#include "gmock/gmock.h"
#include "tests/db/testing.h"
#include "ui/assets.h"

namespace diapason {
namespace {

using Json = nlohmann::ordered_json;
using ReportTest = HistoryTest;
using testing::HasSubstr;
using testing::Not;

TEST(EmbeddedJsonTest, NoTextEndsItsElement) {
  const Json json = {{"name", "</script><script>alert(1)</script><!--"}, {"bytes", "\xff\xfe"}, {"line", "\u2028"}};
  const std::string text = EmbeddedJson(json);
  EXPECT_THAT(text, Not(HasSubstr("<")));
  EXPECT_THAT(text, HasSubstr("\\u003c/script>"));
  const Json again = Json::parse(text);
  EXPECT_EQ(again["name"], json["name"]);
  EXPECT_EQ(again["line"], json["line"]);
}

TEST(ReportHtmlTest, ScriptsAreAllowedByHashAndNothingIsFetched) {
  const std::string html = ReportHtml({{"history", {{"history", "</script><img src=x onerror=alert(1)>"}}}});
  EXPECT_THAT(html, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(html,
              HasSubstr("http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(html, Not(HasSubstr("unsafe")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  for (const char* fetches : {"<script src", "<link rel=\"stylesheet\"", "@import", "url("})
    EXPECT_THAT(html, Not(HasSubstr(fetches)));
  // Each script stands alone in its element: none ends it early.
  size_t begins = 0, ends = 0;
  for (size_t at = html.find("<script"); at != std::string::npos; at = html.find("<script", at + 1)) ++begins;
  for (size_t at = html.find("</script"); at != std::string::npos; at = html.find("</script", at + 1)) ++ends;
  EXPECT_EQ(begins, PageAssets().size() - 2 + 1);  // all but index.html and the style sheet, and the data
  EXPECT_EQ(begins, ends);
}

TEST_F(ReportTest, AnotherFileIsNeverOverwritten) {
  const std::string html = ReportHtml(Json::object());
  ASSERT_TRUE(WriteReport(Path("r.html"), html).ok());
  EXPECT_EQ(ReadFile(Path("r.html")), html);
  EXPECT_TRUE(WriteReport(Path("r.html"), html).ok());
  WriteFile(Path("h.db"), "precious");
  EXPECT_EQ(WriteReport(Path("h.db"), html).message(),
            "'" + Path("h.db") + "' is there already and is no report of this program; name another file");
  EXPECT_EQ(ReadFile(Path("h.db")), "precious");
  EXPECT_EQ(WriteReport(Path("no/r.html"), html).message(),
            "cannot write '" + Path("no/r.html") +
                "' (No such file or directory); name a file in a folder that exists, with room, that you may write to");
}

}  // namespace
}  // namespace diapason
