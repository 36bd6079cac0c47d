package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/store"
	"comet/store/storetest"
)

// TestLedgerResponsesMatchTheDescription goes through the life of a budget and holds
// every answer against the description.
func TestLedgerResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const agent = "/api/v1/agents/{agent_id}"
	d, doc := newDescribedServer(t), readDescription(t)
	// ask makes a request and returns the id in the answer, "" where there is none.
	ask := func(method, path, id, body string, status int) string {
		address := strings.NewReplacer("{agent_id}", "orch-scholar", "{reservation_id}", id, "{addition_id}", id).Replace(path)
		template, _, _ := strings.Cut(path, "?")
		where := method + " " + address + " " + strconv.Itoa(status)
		got, header, text := d.send(t, method, address, d.admin, body, http.Header{})
		require.Equal(t, status, got, "%s: %s", where, text)
		described, ok := doc.Paths[template][strings.ToLower(method)].Responses[strconv.Itoa(status)]
		require.True(t, ok, "%s is not described", where)
		if described.Ref != "" {
			described = doc.Components.Responses[strings.TrimPrefix(described.Ref, "#/components/responses/")]
		}
		doc.holds(t, where, described, header, text)
		switch status { // whose description names members of its own
		case http.StatusTooManyRequests, http.StatusForbidden:
			requireMembers(t, text, new(budgetProblem))
		case http.StatusConflict:
			requireMembers(t, text, new(reservationProblem))
		}
		var answer struct{ ID string }
		if len(text) > 0 {
			require.NoError(t, json.Unmarshal(text, &answer))
		}
		return answer.ID
	}

	ask("GET", agent+"/usage", "", "", 200)
	ask("POST", agent+"/usage", "", `{"tokens":7,"model":"m","request_id":"a","outcome":"success"}`, 201)
	ask("POST", agent+"/usage", "", `{"tokens":7,"model":"m","request_id":"a","outcome":"success"}`, 200)
	ask("POST", agent+"/usage", "", `{"tokens":8,"request_id":"a"}`, 409)
	ask("POST", agent+"/usage", "", `{"facts":[{"tokens":7,"model":"m","request_id":"a","outcome":"success"},{"tokens":1}]}`, 201)
	ask("POST", agent+"/usage", "", `{"facts":[{"tokens":7,"model":"m","request_id":"a","outcome":"success"}]}`, 200)
	ask("POST", agent+"/usage", "", `{"facts":[]}`, 400)
	ask("GET", agent+"/usage/history", "", "", 200)
	ask("GET", agent+"/usage/history?group_by=model&window=day&top=1", "", "", 200)
	ask("GET", agent+"/usage/history?group_by=colour", "", "", 400)

	held := ask("POST", agent+"/reservations", "", `{"tokens":100,"ttl_seconds":null}`, 201)
	ask("POST", agent+"/reservations", "", `{"tokens":100000}`, 403)
	ask("POST", agent+"/reservations", "", `{"tokens":99893}`, 429)
	ask("GET", agent+"/reservations", "", "", 200)
	ask("GET", agent+"/reservations/{reservation_id}", held, "", 200)
	ask("GET", agent+"/reservations/{reservation_id}", "nothing", "", 404)
	ask("POST", agent+"/reservations/{reservation_id}/settle", held, `{"tokens":90}`, 200)
	ask("POST", agent+"/reservations/{reservation_id}/settle", held, `{"tokens":91}`, 409)
	ask("GET", agent+"/reservations/{reservation_id}", held, "", 200)
	ask("DELETE", agent+"/reservations/{reservation_id}", held, "", 409)
	ask("DELETE", agent+"/reservations/{reservation_id}", ask("POST", agent+"/reservations", "", `{"tokens":1}`, 201), "", 204)
	ask("GET", agent+"/reservations?limit=1", "", "", 200)

	added := ask("POST", agent+"/budget/additions", "", `{"tokens":5,"expires_at":"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`","reason":"a test"}`, 201)
	ask("POST", agent+"/budget/additions", "", `{"tokens":5}`, 400)
	ask("GET", agent+"/budget/additions", "", "", 200)
	ask("DELETE", agent+"/budget/additions/{addition_id}", added, "", 204)
	ask("DELETE", agent+"/budget/additions/{addition_id}", added, "", 404)
	ask("GET", agent+"/budget/additions?include_inactive=true", "", "", 200)
	ask("POST", agent+"/usage/reset", "", `{"reason":"a test"}`, 200)
	ask("POST", agent+"/usage/reset", "", `{}`, 400)
	ask("PATCH", agent, "", `{"budget_scope":"subtree"}`, 200)
	ask("GET", agent+"/usage", "", "", 200)
	ask("GET", agent+"/audit", "", "", 200)
	ask("GET", "/api/v1/hierarchy?usage=true", "", "", 200)
	ask("GET", "/api/v1/ledger/verify", "", "", 200)
	require.NoError(t, d.store.Write(t.Context(), func(tx *store.Tx) error {
		return storetest.AddUsage(tx, "nova", "nova", tx.Now(), 5)
	}))
	ask("GET", "/api/v1/ledger/verify", "", "", 200) // with differences
}

// requireMembers checks that the description's type has every member of the answer.
func requireMembers(t *testing.T, text []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(into), "%s", text)
}
