"""The panels of the three dashboards as data, and Grafana's JSON of them. Names of metrics are those of docs/METRICS.md,
which a test compares. Written by deploy/generate.py."""

MODEL = 'model=~"$model"'
RATE = "$__rate_interval"


def _in(metric, extra=""):
    return f"{metric}{{{MODEL}{',' + extra if extra else ''}}}"


def rate(metric, extra="", by=""):
    of = f"rate({_in(metric, extra)}[{RATE}])"
    return f"sum by ({by}) ({of})" if by else f"sum({of})"


def mean(histogram, by="", extra=""):
    return f"{rate(histogram + '_sum', extra, by)} / {rate(histogram + '_count', extra, by)}"


def quantile(share, histogram, by="", extra=""):
    labels = "le, " + by if by else "le"
    return f"histogram_quantile({share}, {rate(histogram + '_bucket', extra, labels)})"


def gauge(metric, by="", extra=""):
    return f"sum by ({by}) ({_in(metric, extra)})" if by else f"sum({_in(metric, extra)})"


def quantiles(title, histogram, unit="s", about=""):
    return panel(title, [(quantile(share, histogram), f"p{round(share * 100)}") for share in (0.5, 0.9, 0.99)],
                 unit, about)


def heatmap(title, histogram, unit="s", about=""):
    query = f"sum by (le) (increase({_in(histogram + '_bucket')}[{RATE}]))"
    return panel(title, [(query, "{{le}}")], unit, about, kind="heatmap")


def panel(title, queries, unit="none", about="", kind="timeseries", stack=False):
    return {"title": title, "queries": queries, "unit": unit, "about": about, "kind": kind, "stack": stack}


OVERVIEW = [
    panel("Goodput", [(f"{rate('baton_slo_requests_total', 'slo=%s,met=%s' % (chr(34) + slo + chr(34), chr(34) + 'true' + chr(34)))}"
                       f" / {rate('baton_slo_requests_total', 'slo=%s' % (chr(34) + slo + chr(34)))}", slo)
                      for slo in ("all", "ttft", "itl")], "percentunit",
          "Share of requests within server.slo_ttft and server.slo_itl. Without limits every answered request is good."),
    panel("Requests by outcome", [(rate("baton_requests_total", by="outcome"), "{{outcome}}")], "reqps"),
    quantiles("Time to the first token", "baton_time_to_first_token_seconds"),
    quantiles("Gap between tokens", "baton_inter_token_latency_seconds"),
    quantiles("Mean gap of a request", "baton_time_per_output_token_seconds"),
    quantiles("Whole request", "baton_request_duration_seconds"),
    panel("Tokens per second", [(rate("baton_generated_tokens_total"), "generated"),
                                (rate("baton_prefill_tokens_total"), "prompt, computed"),
                                (rate("baton_prefill_reused_tokens_total"), "prompt, reused"),
                                (rate("baton_goodput_tokens_total"), "of good requests")]),
    panel("Requests under way", [(gauge("baton_requests_running"), "running"),
                                 (gauge("baton_queue_depth", "stage"), "waiting: {{stage}}")]),
    panel("Prompt tokens whose KV was reused",
          [(f"{rate('baton_prefill_reused_tokens_total')} / ({rate('baton_prefill_reused_tokens_total')} + "
            f"{rate('baton_prefill_tokens_total')})", "share")], "percentunit"),
    panel("Turned away and cancelled",
          [(rate("baton_requests_total", 'outcome=~"overload|canceled|deadline"', "outcome"), "{{outcome}}"),
           (rate("baton_access_refused_total", by="reason"), "key: {{reason}}")], "reqps"),
    panel("Workers, there and wanted",
          [(f"sum by (prefers) (max by (role, prefers) ({_in('baton_workers', '')}))", "{{prefers}}, there"),
           (gauge("baton_pool_desired_replicas", "role"), "{{role}}, wanted")],
          about="What the load needs, by the costs that workers have measured; an autoscaler follows it."),
    panel("KV pages in use", [(f"max({_in('baton_kv_usage_ratio')})", "share")], "percentunit"),
    heatmap("Time to the first token, spread", "baton_time_to_first_token_seconds"),
    heatmap("Gaps between tokens, spread", "baton_inter_token_latency_seconds"),
    panel("Ready", [(f"min({_in('baton_ready')})", "ready")], kind="stat"),
    panel("Good tokens of all",
          [(f"{rate('baton_goodput_tokens_total')} / {rate('baton_generated_tokens_total')}", "share")], "percentunit"),
]

PIPELINE = [
    panel("To the first token, mean", [(mean("baton_first_token_stage_seconds", "stage"), "{{stage}}")], "s",
          "Each stage is stamped where it passes; unaccounted is what none of them saw.", stack=True),
    panel("To the first token, p99", [(quantile(0.99, "baton_first_token_stage_seconds", "stage"), "{{stage}}")], "s"),
    panel("To the second token, mean", [(mean("baton_second_token_stage_seconds", "stage"), "{{stage}}")], "s",
          "The gap that the handoff may stretch.", stack=True),
    quantiles("Gap before the second token", "baton_second_token_gap_seconds"),
    panel("Whole life, mean", [(mean("baton_request_stage_seconds", "stage"), "{{stage}}")], "s", stack=True),
    quantiles("Transfer that nothing hides", "baton_kv_transfer_exposed_seconds", about="0: all of it was hidden."),
    panel("KV between workers", [(rate("baton_kv_sent_bytes_total", by="worker"), "{{worker}} sends"),
                                 (rate("baton_kv_received_bytes_total", by="worker"), "{{worker}} receives")], "Bps"),
    panel("Links, measured", [(gauge("baton_kv_link_bytes_per_second", "worker, link"), "{{worker}} to {{link}}")], "Bps"),
    panel("Links, round trip", [(gauge("baton_kv_link_round_trip_seconds", "worker, link"), "{{worker}} to {{link}}")], "s"),
    panel("Handoffs", [(rate("baton_handoffs_committed_total"), "committed"),
                       (rate("baton_handoffs_failed_total"), "failed"),
                       (rate("baton_handoffs_resumed_total"), "resumed")], "ops"),
    panel("KV that was not taken", [(rate("baton_kv_chunks_refused_total", by="reason"), "chunk: {{reason}}"),
                                    (rate("baton_kv_tickets_refused_total", by="reason"), "ticket: {{reason}}")], "ops"),
    panel("KV pages by state", [(gauge("baton_kv_pages", "state", 'state!="shared"'), "{{state}}")], stack=True),
    panel("First token, predicted and actual", [(mean("baton_plan_first_token_seconds", "kind"), "{{kind}}")], "s"),
    quantiles("Predictions off by", "baton_prefill_plan_error_ratio", "percentunit", "|actual / predicted - 1|"),
    panel("Relays", [(rate("baton_relays_total", by="push"), "push: {{push}}")], "ops",
          "Prompts that several workers computed together."),
    panel("Relays, wait and imbalance",
          [(rate("baton_slice_wait_seconds_total", by="worker"), "{{worker}} waits, s/s"),
           (mean("baton_prefill_imbalance_ratio"), "largest share / mean share")]),
    panel("Tokens of a step", [(mean("baton_step_tokens", "worker"), "{{worker}}")]),
    quantiles("Cancel to release", "baton_cancel_latency_seconds"),
    panel("Attempts made anew", [(rate("baton_failovers_total", by="cause"), "{{cause}}")], "ops"),
    panel("Tokens computed again", [(rate("baton_recompute_tokens_total", by="reason"), "{{reason}}")]),
]

WORKERS = [
    panel("Connected", [(gauge("baton_worker_connected", "worker"), "{{worker}}")]),
    panel("Share of time in steps", [(rate("baton_step_seconds_total", by="worker"), "{{worker}}")], "percentunit"),
    panel("Step, p99", [(quantile(0.99, "baton_step_duration_seconds", "worker"), "{{worker}}")], "s"),
    panel("Step, mean", [(mean("baton_step_duration_seconds", "worker"), "{{worker}}")], "s"),
    panel("Prompt tokens queued", [(gauge("baton_worker_prefill_queued_tokens", "worker"), "{{worker}}")]),
    panel("Sequences", [(gauge("baton_worker_decode_rows", "worker"), "{{worker}}, in the batch"),
                        (gauge("baton_worker_decode_waiting", "worker"), "{{worker}}, waiting")]),
    panel("KV pages in use",
          [(f"1 - {gauge('baton_kv_free_pages', 'worker')} / {gauge('baton_kv_capacity_pages', 'worker')}", "{{worker}}")],
          "percentunit"),
    panel("Tokens per second", [(rate("baton_prefill_tokens_total", by="worker"), "{{worker}}, prompt"),
                                (rate("baton_decode_tokens_total", by="worker"), "{{worker}}, generated")]),
    panel("Age of the engine's turn", [(gauge("baton_engine_turn_seconds", "worker"), "{{worker}}")], "s",
          "An engine that stands still shows here first."),
    panel("Parts that ended badly", [(rate("baton_parts_failed_total", by="worker"), "{{worker}}, failed"),
                                     (rate("baton_cancellations_total", by="worker"), "{{worker}}, cancelled"),
                                     (rate("baton_preemptions_total", by="worker"), "{{worker}}, preempted")], "ops"),
    panel("Processor", [(f'sum by (instance) (rate(process_cpu_seconds_total{{job=~"baton.*"}}[{RATE}]))', "{{instance}}")],
          "none", "Cores in use."),
    panel("Memory", [('sum by (instance) (process_resident_memory_bytes{job=~"baton.*"})', "{{instance}}")], "bytes"),
    panel("Open descriptors", [('sum by (instance) (process_open_fds{job=~"baton.*"})', "{{instance}}")]),
    panel("Age of processes", [('time() - process_start_time_seconds{job=~"baton.*"}', "{{instance}}")], "s"),
    panel("Clients' connections", [(gauge("baton_http_connections"), "open"),
                                   (rate("baton_http_connections_refused_total"), "refused, per second")]),
    panel("Bytes on their way", [(gauge("baton_http_incoming_bytes"), "requests"),
                                 (gauge("baton_http_unsent_bytes"), "answers")], "bytes"),
    panel("Versions", [("count by (version) (baton_build_info)", "{{version}}")], kind="stat"),
]

# File name to title, uid and panels.
DASHBOARDS = {"overview": ("Baton: overview", "baton-overview", OVERVIEW),
              "pipeline": ("Baton: prefill, handoff, decode", "baton-pipeline", PIPELINE),
              "workers": ("Baton: workers and hosts", "baton-workers", WORKERS)}

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _grafana_panel(number, described):
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 20} if described["stack"] else {}
    return {
        "id": number + 1, "type": described["kind"], "title": described["title"], "description": described["about"],
        "datasource": _SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": described["unit"], "custom": custom}, "overrides": []},
        "options": {},
        "targets": [{"datasource": _SOURCE, "refId": chr(ord("A") + i), "expr": query, "legendFormat": legend,
                     "format": "heatmap" if described["kind"] == "heatmap" else "time_series"}
                    for i, (query, legend) in enumerate(described["queries"])]}


def grafana(title, uid, panels):
    """A dashboard as Grafana imports it."""
    return {
        "title": title, "uid": uid, "schemaVersion": 39, "version": 1, "tags": ["baton"], "editable": True,
        "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "data source"},
            {"name": "model", "type": "query", "datasource": _SOURCE, "query": "label_values(baton_ready, model)",
             "label": "model", "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*",
             "current": {"text": "All", "value": "$__all"}}]},
        "panels": [_grafana_panel(i, described) for i, described in enumerate(panels)]}
