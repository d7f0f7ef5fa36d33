#include "bench/relay/rank_orders.h"

#include <boost/json.hpp>
#include <concepts>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace json = boost::json;

// Writes fields; one walk over the fields serves writing and reading.
class Writer {
 public:
  template <typename T>
  void Field(const char* name, const T& value) {
    object_[name] = json::value_from(value);
  }
  void Links(const char* name, const std::vector<RankLink>& links) {
    json::array array;
    for (const RankLink& link : links) {
      array.push_back({{"ticket", link.ticket},
                       {"sink", link.sink},
                       {"address", link.address},
                       {"first_page", link.first_page},
                       {"n_pages", link.n_pages}});
    }
    object_[name] = std::move(array);
  }
  std::string Line() const { return json::serialize(object_); }

 private:
  json::object object_;
};

class Reader {
 public:
  explicit Reader(const std::string& line) : object_(json::parse(line).as_object()) {}

  template <typename T>
  void Field(const char* name, T& value) {
    value = json::value_to<T>(object_.at(name));
  }
  void Links(const char* name, std::vector<RankLink>& links) {
    for (const json::value& link : object_.at(name).as_array()) {
      links.push_back({json::value_to<uint64_t>(link.at("ticket")),
                       json::value_to<Incarnation>(link.at("sink")),
                       json::value_to<std::string>(link.at("address")),
                       json::value_to<int>(link.at("first_page")),
                       json::value_to<int>(link.at("n_pages"))});
    }
  }

 private:
  json::object object_;
};

// Writing takes a const Order, reading a mutable one.
template <typename T, typename Order>
concept Either = std::same_as<std::remove_const_t<T>, Order>;

template <typename Walker, Either<RankStart> Start>
void Walk(Walker& walker, Start& start) {
  walker.Field("model", start.engine.model);
  walker.Field("dtype", start.engine.dtype);
  walker.Field("kv_dtype", start.engine.kv_dtype);
  walker.Field("isa", start.engine.isa);
  walker.Field("dense_mask", start.lab.dense_mask);
  walker.Field("threads", start.engine.threads);
  walker.Field("spin_us", start.engine.spin_us);
  walker.Field("page_tokens", start.engine.page_tokens);
  walker.Field("max_step_tokens", start.engine.limits.max_step_tokens);
  walker.Field("max_slice_tokens", start.engine.limits.max_slice_tokens);
  walker.Field("cache_dir", start.engine.cache_dir);
  walker.Field("cpus", start.cpus);
  walker.Field("max_tokens", start.max_tokens);
  walker.Field("pool_pages", start.pool_pages);
  walker.Field("with_residuals", start.with_residuals);
  walker.Field("incarnation", start.incarnation);
  walker.Field("bytes_per_second", start.pace.bytes_per_second);
  walker.Field("latency_us", start.pace.latency_us);
  walker.Field("worker", start.pace.worker);
  walker.Field("noise_workers", start.pace.noise.workers);
  walker.Field("noise_factor", start.pace.noise.factor);
  walker.Field("noise_period", start.pace.noise.period);
  walker.Field("noise_seed", start.pace.noise.seed);
}

template <typename Walker, Either<RankStarted> Started>
void Walk(Walker& walker, Started& started) {
  walker.Field("address", started.address);
  walker.Field("numerics_id", started.numerics_id);
  walker.Field("isa", started.isa);
  walker.Field("model", started.model);
  walker.Field("n_layers", started.n_layers);
  walker.Field("page_tokens", started.page_tokens);
  walker.Field("page_bytes", started.page_bytes);
  walker.Field("residual_bytes", started.residual_bytes);
  walker.Field("model_fingerprint", started.model_fingerprint);
}

template <typename Walker, Either<RankRun> Run>
void Walk(Walker& walker, Run& run) {
  walker.Field("tokens", run.tokens);
  walker.Field("begin", run.begin);
  walker.Field("end", run.end);
  walker.Field("seed", run.seed);
  walker.Field("pieces", run.pieces);
  walker.Field("key_ranges", run.key_ranges);
  walker.Field("chunks", run.chunks);
  walker.Field("first_layer", run.first_layer);
  walker.Field("end_layer", run.end_layer);
  walker.Field("noisy", run.noisy);
  walker.Field("wants_logits", run.wants_logits);
  walker.Field("by_steps", run.by_steps);
  walker.Field("streams", run.streams);
  walker.Field("cuts_through", run.cuts_through);
  walker.Links("in", run.in);
  walker.Links("out", run.out);
}

template <typename Walker, Either<RankDone> Done>
void Walk(Walker& walker, Done& done) {
  walker.Field("computed", done.computed);
  walker.Field("arrived", done.arrived);
  walker.Field("waited", done.waited);
  walker.Field("layers", done.layers);
  walker.Field("projections", done.projections);
  walker.Field("median_layer", done.median_layer);
  walker.Field("digest", done.digest);
  walker.Field("logits", done.logits);
  walker.Field("bytes_sent", done.bytes_sent);
  walker.Field("kv_bytes", done.kv_bytes);
  walker.Field("peak_memory", done.peak_memory);
}

template <typename T>
std::string Written(const T& value) {
  Writer writer;
  Walk(writer, value);
  return writer.Line();
}

template <typename T>
absl::Status Read(const std::string& line, T* value) {
  try {  // the JSON library throws; no exception leaves this function
    Reader reader(line);
    Walk(reader, *value);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("a process of the relay benchmark said \"", line, "\": ", error.what()));
  }
}

}  // namespace

std::string ToLine(const RankStart& start) { return Written(start); }
std::string ToLine(const RankStarted& started) { return Written(started); }
std::string ToLine(const RankRun& run) { return Written(run); }
std::string ToLine(const RankDone& done) { return Written(done); }
absl::Status FromLine(const std::string& line, RankStart* start) { return Read(line, start); }
absl::Status FromLine(const std::string& line, RankStarted* started) { return Read(line, started); }
absl::Status FromLine(const std::string& line, RankRun* run) { return Read(line, run); }
absl::Status FromLine(const std::string& line, RankDone* done) { return Read(line, done); }

}  // namespace baton
