"""Grafana's dashboards as tables: `make dashboards` writes deploy/grafana/*.json from them, by grafana-foundation-sdk.

The JSON is never edited by hand. The tests send each query to a real Prometheus, so a panel that shows nothing fails.
"""
