#include "worker/rpc/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <exception>
#include <limits>

namespace diapason {
namespace {

constexpr int kScrapeThreads = 2;

prometheus::ClientMetric ToClient(const Metric& metric, const Metric::Value& value) {
  prometheus::ClientMetric client;
  for (const auto& [name, text] : value.labels) client.label.push_back({name, text});
  client.gauge.value = client.counter.value = value.number;
  if (metric.type != Metric::Type::kHistogram) return client;
  const Distribution& distribution = value.distribution;
  client.histogram.sample_count = distribution.count();
  client.histogram.sample_sum = distribution.sum();
  for (size_t i = 0; i < Distribution::kBounds.size(); ++i)
    client.histogram.bucket.push_back({distribution.up_to(i), Distribution::kBounds[i]});
  client.histogram.bucket.push_back({distribution.count(), std::numeric_limits<double>::infinity()});
  return client;
}

prometheus::MetricType TypeOf(Metric::Type type) {
  if (type == Metric::Type::kGauge) return prometheus::MetricType::Gauge;
  return type == Metric::Type::kCounter ? prometheus::MetricType::Counter : prometheus::MetricType::Histogram;
}

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(std::function<std::vector<Metric>()> collect) : collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const Metric& metric : collect_()) {
      prometheus::MetricFamily family{metric.name, metric.help, TypeOf(metric.type), {}};
      for (const Metric::Value& value : metric.values) family.metric.push_back(ToClient(metric, value));
      families.push_back(std::move(family));
    }
    return families;
  }

 private:
  const std::function<std::vector<Metric>()> collect_;
};

}  // namespace

void Distribution::Add(double seconds) {
  if (!(seconds >= 0)) return;
  for (size_t i = 0; i < kBounds.size(); ++i) cumulative_[i] += seconds <= kBounds[i] ? 1 : 0;
  ++count_;
  sum_ += seconds;
}

class MetricsServer::Impl {
 public:
  Impl(const std::string& address, std::function<std::vector<Metric>()> collect)
      : collector_(std::make_shared<Collector>(std::move(collect))), exposer_(address, kScrapeThreads) {
    exposer_.RegisterCollectable(collector_);
    address_ = address.substr(0, address.rfind(':')) + ":" + std::to_string(exposer_.GetListeningPorts().at(0));
  }
  const std::string& address() const { return address_; }

 private:
  const std::shared_ptr<Collector> collector_;
  prometheus::Exposer exposer_;
  std::string address_;
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;
const std::string& MetricsServer::address() const { return impl_->address(); }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    std::function<std::vector<Metric>()> collect) {
  try {  // the library says by an exception that it cannot listen
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::make_unique<Impl>(address, std::move(collect))));
  } catch (const std::exception&) {
    return absl::UnavailableError("cannot serve --metrics on '" + address +
                                  "': the port is in use or the address is not of this host");
  }
}

}  // namespace diapason
