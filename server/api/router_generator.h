// The router and its workers as a Generator: feeds the Router core with what the control streams
// bring and with the time, and carries its effects out. Front thread, but for one wake-up that gRPC
// threads post to the loop.
#pragma once

#include <memory>
#include <vector>

#include "common/clock.h"
#include "proto/control_server.h"
#include "router/router.h"
#include "router/worker_streams.h"
#include "server/api/generator.h"
#include "server/http/event_loop.h"

namespace baton {

class RouterGenerator : public Generator {
 public:
  // Listens for workers; control.wake is set here. Errors of ControlServer::Start. The loop must
  // outlive it.
  static absl::StatusOr<std::unique_ptr<RouterGenerator>> Start(EventLoop* loop,
                                                                const RouterOptions& options,
                                                                ControlServerOptions control);
  ~RouterGenerator() override;

  void SetListener(GeneratorListener* listener) { listener_ = listener; }
  // Called after workers came or went.
  void SetOnChange(std::function<void()> on_change) { on_change_ = std::move(on_change); }
  int control_port() const { return server_->port(); }
  void SetLimits(int max_waiting, absl::Duration sizing_gap) {
    router_.SetLimits(max_waiting, sizing_gap);
  }
  void ReloadCertificate() { server_->ReloadCertificate(); }
  absl::Time certificate_expiry() const { return server_->certificate_expiry(); }

  absl::StatusOr<RequestId> Submit(GenerateRequest request) override;
  void Cancel(RequestId id) override;
  void Drain() override;
  ClusterView View() const override { return router_.View(); }
  std::vector<WorkerView> Workers() const override { return router_.Workers(); }
  std::optional<RequestView> Progress(RequestId id) const override {
    return router_.Progress(id, MonotonicNow());
  }

 private:
  RouterGenerator(EventLoop* loop, const RouterOptions& options, const ClusterKey& key);
  void OnControl();
  bool TakeControlEvents(absl::Time now);
  bool Handle(ControlEvent event, absl::Time now);
  bool HandleReport(const WorkerReported& reported, absl::Time now);
  void OnTime();
  void CarryOut();  // sends what the router has to say, ends streams, sets the timer
  void DeliverLater();
  void Deliver();

  EventLoop* loop_;
  Router router_;
  WorkerStreams streams_;
  std::unique_ptr<ControlServer> server_;
  GeneratorListener* listener_ = nullptr;
  std::function<void()> on_change_;
  EventLoop::Timer timer_;
  absl::Time timer_set_ = absl::InfiniteFuture();
  std::vector<ControlEvent> events_;
  bool delivery_posted_ = false;
};

}  // namespace baton
