"""The endpoint that takes metrics for Azure Monitor workspaces, by data collection rules.

``POST /ingest/<endpoint>/dataCollectionRules/<id>/streams/<stream>/api/v1/write``: on Azure its host, reached
over HTTPS, is ``<endpoint>-<suffix>.<region>-1.metrics.ingest.monitor.azure.com``. Codes and texts of its
refusals are those that users report: 404 "Data collection rule with immutable Id … not found" in a log of
OpenTelemetry's exporter otap-df-contrib-nodes, 403 OperationFailed in the troubleshooting guide of
azure-monitor-ingestion (Azure/azure-sdk-for-java). That of a wrong token is not known here.
"""

from __future__ import annotations

import re

from aiohttp import web

from rehearsal.arm.auth.roles import allows
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.monitor.data_collection import RULES, immutable_id
from rehearsal.arm.monitor.remote_write_decoder import Sample, read_request
from rehearsal.arm.monitor.workspaces import keep_samples
from rehearsal.imds.tokens import Tokens

__all__ = ["AUDIENCES", "PREFIX", "take_metrics"]

PREFIX = "/ingest/"
AUDIENCES = ("https://monitor.azure.com", "https://monitor.azure.com/")
_PATH = re.compile(r"/ingest/([^/]+)/datacollectionrules/(dcr-[0-9a-f]{32})/streams/([^/]+)/api/v1/write")
_STREAM = "microsoft-prometheusmetrics"
_VERSIONS = ("2021-11-01-preview", "2023-04-24")
_RIGHT = "Microsoft.Insights/Metrics/Write"
_LONGEST_BODY = 1 << 20
_HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}


async def take_metrics(
    request: web.BaseRequest, subscription: Subscription, tokens: Tokens
) -> web.StreamResponse:
    """Answer a request of a node, whichever it is: a token and its identity's role decide."""
    try:
        rule = _rule_of(request, subscription, tokens)
        samples = await _read(request)
    except ArmError as error:
        return web.json_response({"error": error.body()}, status=error.status)
    for target in rule.properties["destinations"]["monitoringAccounts"]:
        workspace = ResourceId.parse(target["accountResourceId"])
        if workspace is not None and subscription.exists(workspace):
            keep_samples(subscription.find(workspace), samples)
    return web.Response(status=204)


def _rule_of(request: web.BaseRequest, subscription: Subscription, tokens: Tokens) -> Record:
    """Return the rule that the request is for; refuse one that Azure refuses before it reads the body."""
    found = _PATH.fullmatch(request.path.lower())
    if found is None or request.query.get("api-version") not in _VERSIONS:
        raise ArmError(404, "NotFound", "The requested resource was not found.")
    if request.method != "POST":
        raise ArmError(405, "MethodNotAllowed", "Only POST is served.")
    token = tokens.bearer(request.headers.get("Authorization", ""))
    if token is None or token.audience not in AUDIENCES:
        raise ArmError(401, "InvalidToken", "The authentication token provided is not valid.")
    endpoint, name, stream = found.groups()
    rule = next((r for r in subscription.of_type(RULES.type) if immutable_id(r) == name), None)
    if rule is None or not _belongs(rule, endpoint):
        raise ArmError(404, "NotFound", f"Data collection rule with immutable Id '{name}' not found.")
    if not allows(subscription, token.identity.principal_id, _RIGHT, rule.id, data=True):
        problem = (
            "The authentication token provided does not have access to ingest data for the data collection"
        )
        raise ArmError(403, "OperationFailed", f"{problem} rule with immutable Id '{name}'.")
    if stream != _STREAM:
        raise ArmError(400, "InvalidStream", f"The stream {stream} was not configured in the rule.")
    return rule


async def _read(request: web.BaseRequest) -> list[Sample]:
    wrong = [name for name, value in _HEADERS.items() if request.headers.get(name) != value]
    if wrong:
        raise ArmError(415, "UnsupportedMediaType", f"{wrong[0]} has to be {_HEADERS[wrong[0]]}.")
    if request.content_length is None or request.content_length > _LONGEST_BODY:
        raise ArmError(413, "ContentLengthLimitExceeded", "The request is too large.")
    try:
        return read_request(await request.content.read())
    except ValueError as error:
        raise ArmError(400, "InvalidPayload", f"The request is not of remote write: {error}") from None


def _belongs(rule: Record, endpoint: str) -> bool:
    own = str(rule.properties.get("dataCollectionEndpointId", ""))
    return own.rpartition("/")[2].lower() == endpoint
