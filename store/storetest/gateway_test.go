package storetest_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestUpstreams(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		save := func(id, config, by string) models.Upstream {
			u := models.Upstream{ID: id, Config: json.RawMessage(config), CreatedBy: by}
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tools().SaveUpstream(&u) }))
			return u
		}
		drop := func(id string) error {
			return db.Write(t.Context(), func(tx *store.Tx) error { _, err := tx.Tools().DeleteUpstream(id); return err })
		}
		made := db.Now()
		first := save("paper", `{"url":"http://a"}`, "ada")
		require.Equal(t, models.Upstream{ID: "paper", Config: json.RawMessage(`{"url":"http://a"}`), Version: 1, CreatedBy: "ada", CreatedAt: made, UpdatedAt: made}, first)

		db.Clock.Advance(time.Minute)
		second := save("paper", `{"url":"http://b"}`, "bob")
		require.Equal(t, models.Upstream{ID: "paper", Config: json.RawMessage(`{"url":"http://b"}`), Version: 2, CreatedBy: "ada", CreatedAt: made, UpdatedAt: made.Add(time.Minute)},
			second, "it was made once")
		ink := save("ink", `{}`, "bob")
		all, err := db.Tools(t.Context()).Upstreams("")
		require.NoError(t, err)
		require.Equal(t, []models.Upstream{ink, second}, all, "in the order of the ids")
		for id, want := range map[string][]models.Upstream{"ink": {ink}, "glue": {}} {
			all, err = db.Tools(t.Context()).Upstreams(id)
			require.NoError(t, err)
			require.Equal(t, want, all)
		}

		require.NoError(t, drop("paper"))
		require.True(t, errs.Is(drop("paper"), errs.NotFound))
		require.Equal(t, int64(1), save("paper", `{}`, "eve").Version, "another one")
	})
}

func TestToolPolicies(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		save := func(tokenID string, p models.ToolPolicy) error {
			return db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tools().SavePolicy(tokenID, p, "ada") })
		}
		tok := models.Token{ID: uuid.NewString(), Name: "t", Hash: [32]byte{1}, Scopes: []models.Scope{models.ScopeToolsCall}, CreatedBy: "ada", CreatedAt: db.Now()}
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tokens().Insert(tok) }))

		_, _, err := db.Tools(t.Context()).Policy(tok.ID)
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		for _, p := range []models.ToolPolicy{
			{Allow: []models.ToolRule{{Tool: "paper:*", Arguments: map[string]string{"path": "/srv/*"}}}, Deny: []models.ToolRule{{Tool: "ink"}}, Classes: []models.ToolClass{models.ToolRead}},
			{Deny: []models.ToolRule{{Tool: "é*"}}},
		} {
			require.NoError(t, save(tok.ID, p))
			got, version, err := db.Tools(t.Context()).Policy(tok.ID)
			require.NoError(t, err)
			require.Positive(t, version)
			require.Equal(t, p, got, "the last one counts")
		}
		for range 2 {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tools().DeletePolicy(tok.ID) }), "also where there is none")
			_, _, err = db.Tools(t.Context()).Policy(tok.ID)
			require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		}
		require.True(t, errs.Is(save("missing", models.ToolPolicy{}), errs.Conflict))
	})
}

func TestToolDefinitions(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		write := func(fn func(tx *store.Tx) error) { require.NoError(t, db.Write(t.Context(), fn)) }
		of := func(server string) []models.ToolDefinition {
			list, err := db.Tools(t.Context()).Definitions(server)
			require.NoError(t, err)
			return list
		}
		fresh := func(server, name string) models.ToolDefinition {
			return models.ToolDefinition{Server: server, Name: name, State: "approved", Digest: "d1", Definition: json.RawMessage(`{"a":1}`), SeenAt: db.Now()}
		}
		read, list, other := fresh("paper", "read"), fresh("paper", "list"), fresh("ink", "read")
		write(func(tx *store.Tx) error { return tx.Tools().AddDefinitions([]models.ToolDefinition{read, list, other}) })
		require.Equal(t, []models.ToolDefinition{list, read}, of("paper"), "in the order of the names")
		require.Equal(t, []models.ToolDefinition{other, list, read}, of(""), "of all servers")
		require.Empty(t, of("missing"))

		again := read
		again.Digest = "d2"
		write(func(tx *store.Tx) error { return tx.Tools().AddDefinitions([]models.ToolDefinition{again}) })
		require.Equal(t, []models.ToolDefinition{list, read}, of("paper"), "what is known stays as it is")

		changed := read
		changed.State, changed.PendingDigest, changed.Pending, changed.Class = "quarantined", "d3", json.RawMessage(`{"b":2}`), models.ToolWrite
		changed.ChangedAt, changed.ApprovedAt, changed.ApprovedBy = db.Now(), db.Now(), "ada"
		write(func(tx *store.Tx) error { return tx.Tools().SaveDefinitions([]models.ToolDefinition{changed}) })
		write(func(tx *store.Tx) error {
			got, err := tx.Tools().LockDefinition("paper", "read")
			require.Equal(t, changed, got)
			return err
		})
		err := db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Tools().LockDefinition("paper", "nothing")
			return err
		})
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)

		write(func(tx *store.Tx) error { return tx.Tools().DeleteDefinitions("paper") })
		require.Equal(t, []models.ToolDefinition{other}, of(""))

		var many []models.ToolDefinition
		for n := range 10_000 { // as many as an upstream may have
			many = append(many, fresh("many", fmt.Sprintf("t%05d", n)))
		}
		write(func(tx *store.Tx) error { return tx.Tools().AddDefinitions(many) })
		require.Equal(t, many, of("many"))
	})
}

func TestToolCalls(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		begin := db.Now()
		id := func(after time.Duration, n int) string { // a UUIDv7 of that moment
			ms := begin.Add(after).UnixMilli()
			return fmt.Sprintf("%08x-%04x-7000-8000-%012x", ms>>16, ms&0xffff, n)
		}
		one := models.ToolCall{
			ID: id(0, 1), At: begin, Source: "mcp", TokenID: "t1", Actor: "ada", AgentID: "nova", Server: "paper", Tool: "read", Class: models.ToolRead, Digest: "d",
			Outcome: "success", Duration: 1500 * time.Microsecond, Tokens: 12, TraceID: "trace",
		}
		two := one
		two.ID, two.Tool, two.Outcome, two.Error, two.TokenID, two.AgentID = id(time.Hour, 2), "write", "error", "MCP_SERVER_ERROR", "t2", "ada"
		three := one
		three.ID, three.Server, three.ParentID, three.TaskID, three.Outcome = id(2*time.Hour, 3), "ink", one.ID, "task", "refused"
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tools().AddCalls([]models.ToolCall{two, one, three}) }))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tools().AddCalls([]models.ToolCall{one}) }), "twice is once")

		for rule, c := range map[string]struct {
			query store.ToolCallQuery
			want  []models.ToolCall
		}{
			"all, the newest first":   {store.ToolCallQuery{}, []models.ToolCall{three, two, one}},
			"no more than asked for":  {store.ToolCallQuery{Limit: 1}, []models.ToolCall{three}},
			"those before one":        {store.ToolCallQuery{Before: two.ID}, []models.ToolCall{one}},
			"of an agent":             {store.ToolCallQuery{AgentID: "ada"}, []models.ToolCall{two}},
			"of a token":              {store.ToolCallQuery{TokenID: "t1"}, []models.ToolCall{three, one}},
			"of a server":             {store.ToolCallQuery{Server: "ink"}, []models.ToolCall{three}},
			"of a tool of any server": {store.ToolCallQuery{Tool: "read"}, []models.ToolCall{three, one}},
			"of a task":               {store.ToolCallQuery{TaskID: "task"}, []models.ToolCall{three}},
			"of a run":                {store.ToolCallQuery{ParentID: one.ID}, []models.ToolCall{three}},
			"that ended so":           {store.ToolCallQuery{Outcome: "error"}, []models.ToolCall{two}},
			"of all conditions":       {store.ToolCallQuery{Server: "paper", TokenID: "t1", Outcome: "success"}, []models.ToolCall{one}},
			"none":                    {store.ToolCallQuery{Server: "paper", TokenID: "t3"}, []models.ToolCall{}},
		} {
			if c.query.Limit == 0 {
				c.query.Limit = 10
			}
			got, err := db.Tools(t.Context()).Calls(c.query)
			require.NoError(t, err)
			require.Equal(t, c.want, got, rule)
		}

		purge := func(before time.Time, limit int) (n int64) {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) (err error) {
				n, err = tx.Tools().PurgeCalls(before, limit)
				return err
			}))
			return n
		}
		require.EqualValues(t, 0, purge(begin, 10), "what began then stays")
		require.EqualValues(t, 1, purge(begin.Add(2*time.Hour), 1), "no more than asked for, the oldest first")
		require.EqualValues(t, 1, purge(begin.Add(2*time.Hour), 10))
		left, err := db.Tools(t.Context()).Calls(store.ToolCallQuery{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []models.ToolCall{three}, left)
	})
}

// TestEmitAll: many events at once are what as many single ones would be.
func TestEmitAll(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		type toolCalled struct {
			CallID string `json:"call_id"`
		}
		var drafts []store.EventDraft
		for n := range 2500 {
			drafts = append(drafts, store.EventDraft{Type: events.ToolCalled, Key: "paper:read", Data: toolCalled{CallID: fmt.Sprint(n)}})
		}
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Events().EmitAll(nil) }))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Events().EmitAll(drafts) }))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.Events().Emit(events.ToolFailed, "paper:read", toolCalled{CallID: "last"})
		}))
		require.Error(t, db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.Events().EmitAll([]store.EventDraft{{Type: events.ToolCalled, Data: func() {}}})
		}), "what is no JSON is none of it")
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, _, err := tx.Events().Number(5000)
			return err
		}))
		all, err := db.Events(t.Context()).After(0, 5000)
		require.NoError(t, err)
		require.Len(t, all, len(drafts)+1)
		for n, e := range all[:len(drafts)] {
			require.Equal(t, events.ToolCalled, e.Type)
			require.Equal(t, "paper:read", e.Key)
			require.Equal(t, db.Now(), e.At)
			var data toolCalled
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.Equal(t, fmt.Sprint(n), data.CallID, "in their order")
		}
		require.Equal(t, events.ToolFailed, all[len(drafts)].Type)
	})
}
