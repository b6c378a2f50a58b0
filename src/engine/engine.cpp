#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "engine/context.h"
#include "engine/machine.h"
#include "engine/residency.h"
#include "io/mapped_faults.h"

namespace moetier {

struct Engine::Impl {
  Impl(GgufFile opened, const EngineOptions& o) : options(o), file(std::move(opened)) {}

  EngineOptions options;
  // In the order of who needs whom.
  GgufFile file;
  std::vector<MappedFaults> faults;  ///< by shard; empty if faults are not to be survived
  DenseMemory dense;
  Residency residency;
  OpProfile profile{options.profile_ops};
  std::unique_ptr<Compute> compute;
  std::unique_ptr<ExpertStore> store;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::string no_tokenizer;  ///< why there is none
  double load_seconds = 0;
  std::chrono::steady_clock::time_point loaded;
  FirstToken first_token;
  std::mutex run_mutex;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::load(const std::string& path, const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  auto impl = std::make_unique<Impl>(GgufFile::open(path), options);
  for (size_t i = 0; options.survive_faults && i < impl->file.shards().size(); ++i) {
    impl->faults.emplace_back(impl->file.shard_bytes(i));
  }
  for (const std::string& spec : options.overrides) impl->file.override_metadata(spec);
  impl->compute = make_profiled_compute(make_cpu_compute(options.cpu), impl->profile);
  architecture_of(impl->file);  // before anything big is read
  const int top_k = read_top_k(impl->file);
  ResidencyMaker maker(impl->file,
                       top_k > 0 ? EntryMap::from_gguf(impl->file, top_k, read_layers(impl->file)) : EntryMap{},
                       impl->options);
  impl->dense = maker.place_dense_weights();
  impl->model = load_model(impl->file, *impl->compute);
  impl->store = maker.make_store();
  impl->residency = maker.residency();
  if (impl->file.find("tokenizer.ggml.model") == nullptr) {
    impl->no_tokenizer =
        fmt::format("{} has no vocabulary (tokenizer.ggml.model is missing), so it takes token ids only", path);
  } else {
    try {
      impl->tokenizer = Tokenizer::load(impl->file);
    } catch (const Error& e) {
      impl->no_tokenizer = e.what();
      log::verbose("no tokenizer: {}", e.what());
    }
  }
  impl->loaded = std::chrono::steady_clock::now();
  impl->load_seconds = std::chrono::duration<double>(impl->loaded - start).count();
  std::unique_ptr<Engine> engine(new Engine(std::move(impl)));
  engine->check_intact();
  return engine;
}

const GgufFile& Engine::file() const {
  return impl_->file;
}
Compute& Engine::compute() {
  return *impl_->compute;
}
const Residency& Engine::residency() const {
  return impl_->residency;
}
ExpertStore* Engine::store() {
  return impl_->store.get();
}
const Model& Engine::model() const {
  return *impl_->model;
}
bool Engine::has_tokenizer() const {
  return impl_->tokenizer != nullptr;
}
double Engine::load_seconds() const {
  return impl_->load_seconds;
}
OpProfile& Engine::profile() {
  return impl_->profile;
}
const Engine::FirstToken& Engine::first_token() const {
  return impl_->first_token;
}
void Engine::note_token() {
  FirstToken& first = impl_->first_token;
  if (first.after_load > 0) return;
  first.after_load = std::chrono::duration<double>(std::chrono::steady_clock::now() - impl_->loaded).count();
  first.after_start = process_age_seconds().value_or(0);
}
const EngineOptions& Engine::options() const {
  return impl_->options;
}
std::mutex& Engine::run_mutex() {
  return impl_->run_mutex;
}

void Engine::check_intact() const {
  for (size_t i = 0; i < impl_->faults.size(); ++i) {
    if (!impl_->faults[i].damaged()) continue;
    fail(
        "{} was cut short or could not be read while it ran, so what was computed from it is lost; make it whole and "
        "load the model again",
        impl_->file.shards()[i].path);
  }
}

const Tokenizer& Engine::tokenizer() const {
  if (impl_->tokenizer == nullptr) fail("{}", impl_->no_tokenizer);
  return *impl_->tokenizer;
}

}  // namespace moetier
