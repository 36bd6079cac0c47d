package envelope_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// TestErrorCodes is the document's table with the HTTP statuses.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 19, 5, 21, 4, 5e8, time.FixedZone("", 3600))
	rows := []struct {
		failure envelope.Failure
		name    string
		retry   bool
		status  int
		context string
	}{
		{envelope.Timeout(3, at), "Timeout", true, http.StatusGatewayTimeout,
			`{"attempted_retries":3,"last_attempt":"2026-01-19T04:21:04.5Z"}`},
		{envelope.Unavailable("infra", &at), "Agent Unavailable", true, http.StatusServiceUnavailable,
			`{"agent_id":"infra","last_heartbeat":"2026-01-19T04:21:04.5Z"}`},
		{envelope.InvalidMessage(envelope.Problem{Field: "payload.x", Detail: "payload.x is bad"}), "Invalid Message", false, http.StatusBadRequest,
			`{"validation_error":"payload.x is bad","field_name":"payload.x"}`},
		{envelope.AuthenticationFailed("infra-1"), "Authentication Failed", false, http.StatusUnauthorized,
			`{"agent_id":"infra-1","token_status":"invalid"}`},
		{envelope.ResourceLimit("memory_mb", 128, 512), "Resource Limit Exceeded", true, http.StatusTooManyRequests,
			`{"limit_name":"memory_mb","available":128,"required":512}`},
		{envelope.UnsupportedWorkType("fly", []string{"run", "walk"}), "Unsupported Work Type", false, http.StatusUnprocessableEntity,
			`{"work_type_requested":"fly","supported_types":["run","walk"]}`},
	}
	for i, row := range rows {
		code := envelope.Code(5001 + i)
		require.Equal(t, code, row.failure.Code)
		require.Equal(t, row.name, code.Name())
		require.Equal(t, row.retry, code.Retryable())
		require.Equal(t, row.status, code.HTTPStatus())
		require.Equal(t, row.context, string(row.failure.Context))
		require.True(t, strings.EqualFold(row.name, row.failure.Message) || strings.HasPrefix(strings.ToLower(row.failure.Message), strings.ToLower(row.name)+":"))

		_, err := envelope.Format(around(row.failure))
		require.NoError(t, err)
	}
	other := envelope.Code(5007)
	require.Empty(t, other.Name())
	require.False(t, other.Retryable())
	require.Equal(t, http.StatusInternalServerError, other.HTTPStatus())
}

func TestUnknownContextIsNull(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{"agent_id":"","last_heartbeat":null}`, string(envelope.Unavailable("", nil).Context))
	require.Equal(t, `{"validation_error":"the message is empty","field_name":null}`,
		string(envelope.InvalidMessage(envelope.Problem{Detail: "the message is empty"}).Context))
	require.Equal(t, `{"work_type_requested":"x","supported_types":[]}`, string(envelope.UnsupportedWorkType("x", nil).Context))
}

// TestFailureCanAlwaysBeSent, whatever text it contains.
func TestFailureCanAlwaysBeSent(t *testing.T) {
	t.Parallel()
	const bad = "\xff\x00<"
	for _, f := range []envelope.Failure{
		envelope.Unavailable(bad, nil),
		envelope.InvalidMessage(envelope.Problem{Field: bad, Detail: bad}),
		envelope.InvalidMessage(),
		envelope.AuthenticationFailed(bad),
		envelope.ResourceLimit(bad, -1, 1),
		envelope.UnsupportedWorkType(bad, []string{bad}),
		envelope.UnsupportedVersion(bad, []string{bad}),
	} {
		written, err := envelope.Format(around(f))
		require.NoError(t, err)
		require.NotContains(t, string(written), bad)
		parse(t, string(written))
	}
}

func TestReplySwapsAgentsAndEchoesIDs(t *testing.T) {
	t.Parallel()
	to := parse(t, bases()["request"])
	id, at := uuid.MustParse(taskID), time.Date(2026, 1, 19, 5, 0, 0, 0, time.FixedZone("", 3600))
	e := envelope.Reply(to, id, at, envelope.AuthenticationFailed("x"))
	require.Equal(t, envelope.Envelope{
		ProtocolVersion: "1.0", MessageID: id, From: "infra", To: "orchestrator", Timestamp: at.UTC(),
		TraceID: to.TraceID, RequestID: to.RequestID, Type: envelope.TypeError, Payload: e.Payload,
	}, e)
}

// TestErrorAboutUnreadableMessage: even a message of which nothing was read gets a valid error.
func TestErrorAboutUnreadableMessage(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{"", "{", "[]", `{"type":"error"}`, message("work_status", "7"), bases()["status"] + "}"} {
		to, err := envelope.Parse([]byte(sent))
		var refused *envelope.Error
		require.ErrorAs(t, err, &refused)
		answer := envelope.Reply(to, uuid.MustParse(messageID), time.Unix(1, 0), refused.Failure)
		written, err := envelope.Format(answer)
		require.NoError(t, err)
		again := parse(t, string(written))
		require.Equal(t, to.TraceID, again.TraceID)
		require.NotEmpty(t, again.To)
	}
}
