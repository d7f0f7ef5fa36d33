"""Recording rules and alerts as data, each alert with series that make it fire and series that do not, for
`promtool test rules`; `also` has more series, each with how many alerts fire. What each means and what to do is in
docs/OPERATING.md. Written by deploy/generate.py."""

GOOD = 'sum by (model) (rate(baton_slo_requests_total{slo="all",met="true"}[%s]))'
JUDGED = 'sum by (model) (rate(baton_slo_requests_total{slo="all"}[%s]))'
OBJECTIVE = 0.99  # of requests are good
BURN_FLOOR = "1 / 60"  # judged requests per second: of fewer, a handful would wake somebody at night

RECORDING = [(f"baton:goodput:ratio_rate{window}", f"{GOOD % window} / {JUDGED % window}")
             for window in ("5m", "30m", "1h", "6h")] + [
    ("baton:requests:rate5m", "sum by (model, outcome) (rate(baton_requests_total[5m]))"),
    ("baton:generated_tokens:rate5m", "sum by (model) (rate(baton_generated_tokens_total[5m]))"),
    ("baton:first_token_seconds:p99_5m",
     "histogram_quantile(0.99, sum by (model, le) (rate(baton_time_to_first_token_seconds_bucket[5m])))"),
    ("baton:gap_seconds:p99_5m",
     "histogram_quantile(0.99, sum by (model, le) (rate(baton_inter_token_latency_seconds_bucket[5m])))"),
]


def alert(name, expr, wait, severity, summary, fires, silent, also=()):
    return {"name": name, "expr": expr, "for": wait, "severity": severity, "summary": summary, "fires": fires,
            "silent": silent, "also": also}


def burn(name, long, short, factor, severity, wait):
    limit = round(1 - factor * (1 - OBJECTIVE), 4)
    return alert(
        name, f"baton:goodput:ratio_rate{long} < {limit} and baton:goodput:ratio_rate{short} < {limit} "
        f"and {JUDGED % long} > {BURN_FLOOR}", wait, severity, f"Requests miss server.slo_* {factor} times as often as an objective of {OBJECTIVE:.0%} allows.",
        {'baton_slo_requests_total{model="m",slo="all",met="true"}': "0+40x800",
         'baton_slo_requests_total{model="m",slo="all",met="false"}': "0+20x800"},
        {'baton_slo_requests_total{model="m",slo="all",met="true"}': "0+5000x800",
         'baton_slo_requests_total{model="m",slo="all",met="false"}': "0+2x800"},
        [({'baton_slo_requests_total{model="m",slo="all",met="true"}': "0x800",
           'baton_slo_requests_total{model="m",slo="all",met="false"}': f"0+{per_minute}x800"}, n)
         for per_minute, n in ((0.5, 0), (2, 1))])


ALERTS = [
    alert("BatonDown", 'up{job=~"baton.*"} == 0', "1m", "critical",
          "{{ $labels.instance }} does not answer /metrics.",
          {'up{job="baton",instance="a"}': "0x60"}, {'up{job="baton",instance="a"}': "1x60"}),
    alert("BatonNotReady", "baton_ready == 0", "1m", "critical",
          "{{ $labels.model }} cannot be served.",
          {'baton_ready{model="m",component="cluster"}': "0x60"}, {'baton_ready{model="m",component="cluster"}': "1x60"}),
    alert("BatonNoWorkers", "sum by (model, prefers) (baton_workers) == 0", "1m", "critical",
          "{{ $labels.model }} has no worker for {{ $labels.prefers }}.",
          {'baton_workers{model="m",prefers="decode"}': "0x60"}, {'baton_workers{model="m",prefers="decode"}': "2x60"}),
    alert("BatonWorkerDisconnected", "baton_worker_connected == 0", "1m", "warning",
          "{{ $labels.worker }} is not connected to its router.",
          {'baton_worker_connected{worker="w"}': "0x60"}, {'baton_worker_connected{worker="w"}': "1x60"}),
    alert("BatonWorkerStands", "baton_workers_standing > 0", "10s", "warning",
          "{{ $value }} engines stand still in one turn.",
          {'baton_workers_standing{model="m"}': "1x60"}, {'baton_workers_standing{model="m"}': "0x60"}),
    alert("BatonWorkersLost", 'increase(baton_failovers_total{cause=~"worker_lost|stuck"}[10m]) > 0', "0s", "warning",
          "Requests were computed anew: {{ $labels.cause }}.",
          {'baton_failovers_total{cause="worker_lost"}': "0x5 1x60"}, {'baton_failovers_total{cause="worker_lost"}': "1x60"}),
    alert("BatonErrors",
          'sum by (model) (rate(baton_requests_total{outcome="internal"}[5m])) > '
          "0.01 * sum by (model) (rate(baton_requests_total[5m]))", "2m", "critical",
          "{{ $labels.model }}: more than 1 % of requests fail.",
          {'baton_requests_total{model="m",outcome="internal"}': "0+1x60", 'baton_requests_total{model="m",outcome="ok"}': "0+20x60"},
          {'baton_requests_total{model="m",outcome="internal"}': "3x60", 'baton_requests_total{model="m",outcome="ok"}': "0+20x60"}),
    alert("BatonOverload", 'sum by (model) (rate(baton_requests_total{outcome="overload"}[5m])) > 0', "5m", "warning",
          "{{ $labels.model }}: requests are refused with 429 or 503.",
          {'baton_requests_total{model="m",outcome="overload"}': "0+1x60"},
          {'baton_requests_total{model="m",outcome="overload"}': "9x60"}),
    alert("BatonQueue", 'sum by (model) (baton_queue_depth) > 10', "5m", "warning",
          "{{ $labels.model }}: {{ $value }} requests wait.",
          {'baton_queue_depth{model="m",stage="route"}': "30x60"}, {'baton_queue_depth{model="m",stage="route"}': "2x60"}),
    # A mean, since a full pool has room for a moment whenever an answer ends.
    alert("BatonKvFull", "avg_over_time(baton_kv_usage_ratio[5m]) > 0.9", "1m", "warning",
          "{{ $labels.model }}: decode workers have no room for KV.",
          {'baton_kv_usage_ratio{model="m"}': "0.99x60"}, {'baton_kv_usage_ratio{model="m"}': "0.7x60"},
          [({'baton_kv_usage_ratio{model="m"}': " ".join(15 * ["0.99 0.98 0.97 0.85"])}, 1)]),
    alert("BatonTooFewWorkers",
          "sum by (model, role) (baton_pool_desired_replicas) > "
          "sum by (model, role) (label_replace("
          'max by (model, role, prefers) (baton_workers), "role", "$1", "prefers", "(.+)"))',  # each router tells of all
          "10m", "info", "{{ $labels.model }}: the load needs {{ $value }} workers for {{ $labels.role }}; there are fewer.",
          {'baton_pool_desired_replicas{model="m",role="decode"}': "3x60", 'baton_workers{model="m",prefers="decode"}': "1x60"},
          {'baton_pool_desired_replicas{model="m",role="decode"}': "1x60", 'baton_workers{model="m",prefers="decode"}': "1x60"},
          [({'baton_pool_desired_replicas{model="m",role="decode"}': "3x60",
             'baton_pool_desired_replicas{model="m",role="prefill"}': f"{wanted}x60",
             'baton_workers{model="m",role="all",prefers="decode"}': "1x60",
             'baton_workers{model="m",role="all",prefers="prefill"}': "2x60"}, n) for wanted, n in ((2, 1), (4, 2))]
          # Two routers: each wants workers for its own load, and tells of the same ones.
          + [({'baton_pool_desired_replicas{model="m",role="decode",instance="a"}': "2x60",
               'baton_pool_desired_replicas{model="m",role="decode",instance="b"}': f"{wanted}x60",
               'baton_workers{model="m",role="decode",prefers="decode",instance="a"}': "3x60",
               'baton_workers{model="m",role="decode",prefers="decode",instance="b"}': "3x60"}, n)
             for wanted, n in ((1, 0), (2, 1))]),
    alert("BatonHandoffsFail",
          "sum by (model) (rate(baton_handoffs_failed_total[5m])) > 0.05 * sum by (model) (rate(baton_handoffs_committed_total[5m]))",
          "2m", "warning", "{{ $labels.model }}: more than 5 % of handoffs of KV fail.",
          {'baton_handoffs_failed_total{model="m"}': "0+1x60", 'baton_handoffs_committed_total{model="m"}': "0+10x60"},
          {'baton_handoffs_failed_total{model="m"}': "4x60", 'baton_handoffs_committed_total{model="m"}': "0+10x60"}),
    alert("BatonLinkBroken", "baton_links_broken > 0", "1m", "warning",
          "Handoffs between {{ $value }} pairs of workers break again and again; requests take others.",
          {'baton_links_broken{model="m"}': "1x60"}, {'baton_links_broken{model="m"}': "0x60"}),
    alert("BatonKvDamaged", 'increase(baton_kv_chunks_refused_total{reason=~"payload|header|mac"}[10m]) > 0', "0s", "critical",
          "{{ $labels.worker }} got KV that was damaged or changed on its way: {{ $labels.reason }}.",
          {'baton_kv_chunks_refused_total{worker="w",reason="payload"}': "0x5 1x60"},
          {'baton_kv_chunks_refused_total{worker="w",reason="payload"}': "0x60"}),
    alert("BatonCancelsOverdue", "increase(baton_cancels_overdue_total[10m]) > 0", "0s", "warning",
          "A worker did not say that it let go of an ended request.",
          {'baton_cancels_overdue_total{model="m"}': "0x5 1x60"}, {'baton_cancels_overdue_total{model="m"}': "1x60"}),
    alert("BatonCertificateExpires",
          # Below zero once it has expired; 0 is no TLS.
          "baton_tls_certificate_expiry_seconds != 0 and baton_tls_certificate_expiry_seconds < 7 * 86400 or "
          "baton_cluster_certificate_expiry_timestamp_seconds > 0 and "
          "baton_cluster_certificate_expiry_timestamp_seconds - time() < 7 * 86400 or "
          "baton_worker_certificate_expiry_timestamp_seconds > 0 and "
          "baton_worker_certificate_expiry_timestamp_seconds - time() < 7 * 86400", "1m", "warning",
          "A certificate of {{ $labels.instance }} expires within a week, or has expired.",
          {"baton_tls_certificate_expiry_seconds": "86400x60"}, {"baton_tls_certificate_expiry_seconds": "2592000x60"},
          [({"baton_tls_certificate_expiry_seconds": "600-60x60"}, 1), ({"baton_tls_certificate_expiry_seconds": "0x60"}, 0),
           # The test looks when time() is 3000.
           ({"baton_cluster_certificate_expiry_timestamp_seconds": "90000x60"}, 1),
           ({"baton_cluster_certificate_expiry_timestamp_seconds": "1000x60"}, 1),
           ({"baton_cluster_certificate_expiry_timestamp_seconds": "2592000x60"}, 0),
           ({"baton_cluster_certificate_expiry_timestamp_seconds": "0x60"}, 0),
           ({'baton_worker_certificate_expiry_timestamp_seconds{worker="w"}': "90000x60"}, 1),
           ({'baton_worker_certificate_expiry_timestamp_seconds{worker="w"}': "2592000x60"}, 0),
           ({'baton_worker_certificate_expiry_timestamp_seconds{worker="w"}': "0x60"}, 0)]),
    burn("BatonGoodputFalls", "1h", "5m", 14.4, "critical", "2m"),
    burn("BatonGoodputSlips", "6h", "30m", 6, "warning", "15m"),
]
