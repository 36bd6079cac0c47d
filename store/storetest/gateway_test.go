package storetest_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestUpstreams(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		save := func(id, config, by string) models.Upstream {
			u := models.Upstream{ID: id, Config: json.RawMessage(config), CreatedBy: by}
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.SaveUpstream(&u) }))
			return u
		}
		drop := func(id string) error {
			return db.Write(t.Context(), func(tx *store.Tx) error { return tx.DeleteUpstream(id) })
		}
		made := db.Now()
		first := save("paper", `{"url":"http://a"}`, "ada")
		require.Equal(t, models.Upstream{ID: "paper", Config: json.RawMessage(`{"url":"http://a"}`), Version: 1, CreatedBy: "ada", CreatedAt: made, UpdatedAt: made}, first)

		db.Clock.Advance(time.Minute)
		second := save("paper", `{"url":"http://b"}`, "bob")
		require.Equal(t, models.Upstream{ID: "paper", Config: json.RawMessage(`{"url":"http://b"}`), Version: 2, CreatedBy: "ada", CreatedAt: made, UpdatedAt: made.Add(time.Minute)},
			second, "it was made once")
		ink := save("ink", `{}`, "bob")
		all, err := db.Upstreams(t.Context())
		require.NoError(t, err)
		require.Equal(t, []models.Upstream{ink, second}, all, "in the order of the ids")

		require.NoError(t, drop("paper"))
		require.True(t, errs.Is(drop("paper"), errs.NotFound))
		require.Equal(t, int64(1), save("paper", `{}`, "eve").Version, "another one")
	})
}

func TestToolPolicies(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		save := func(tokenID string, p models.ToolPolicy) error {
			return db.Write(t.Context(), func(tx *store.Tx) error { return tx.SaveToolPolicy(tokenID, p, "ada") })
		}
		tok := models.Token{ID: uuid.NewString(), Name: "t", Hash: [32]byte{1}, Scopes: []models.Scope{models.ScopeToolsCall}, CreatedBy: "ada", CreatedAt: db.Now()}
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.InsertToken(tok) }))

		_, err := db.ToolPolicy(t.Context(), tok.ID)
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		for _, p := range []models.ToolPolicy{
			{Allow: []models.ToolRule{{Tool: "paper:*", Arguments: map[string]string{"path": "/srv/*"}}}, Deny: []models.ToolRule{{Tool: "ink"}}, Classes: []models.ToolClass{models.ToolRead}},
			{Deny: []models.ToolRule{{Tool: "é*"}}},
		} {
			require.NoError(t, save(tok.ID, p))
			got, err := db.ToolPolicy(t.Context(), tok.ID)
			require.NoError(t, err)
			require.Equal(t, p, got, "the last one counts")
		}
		for range 2 {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.DeleteToolPolicy(tok.ID) }), "also where there is none")
			_, err = db.ToolPolicy(t.Context(), tok.ID)
			require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		}
		require.True(t, errs.Is(save("nobody", models.ToolPolicy{}), errs.Conflict))
	})
}

func TestToolDefinitions(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		write := func(fn func(tx *store.Tx) error) { require.NoError(t, db.Write(t.Context(), fn)) }
		of := func(server string) []models.ToolDefinition {
			list, err := db.ToolDefinitions(t.Context(), server)
			require.NoError(t, err)
			return list
		}
		fresh := func(server, name string) models.ToolDefinition {
			return models.ToolDefinition{Server: server, Name: name, State: models.ToolApproved, Digest: "d1", Definition: json.RawMessage(`{"a":1}`), SeenAt: db.Now()}
		}
		read, list, other := fresh("paper", "read"), fresh("paper", "list"), fresh("ink", "read")
		write(func(tx *store.Tx) error { return tx.AddToolDefinitions([]models.ToolDefinition{read, list, other}) })
		require.Equal(t, []models.ToolDefinition{list, read}, of("paper"), "in the order of the names")
		require.Equal(t, []models.ToolDefinition{other, list, read}, of(""), "of all servers")
		require.Empty(t, of("nobody"))

		again := read
		again.Digest = "d2"
		write(func(tx *store.Tx) error { return tx.AddToolDefinitions([]models.ToolDefinition{again}) })
		require.Equal(t, []models.ToolDefinition{list, read}, of("paper"), "what is known stays as it is")

		changed := read
		changed.State, changed.PendingDigest, changed.Pending, changed.Class = models.ToolQuarantined, "d3", json.RawMessage(`{"b":2}`), models.ToolWrite
		changed.ChangedAt, changed.ApprovedAt, changed.ApprovedBy = db.Now(), db.Now(), "ada"
		write(func(tx *store.Tx) error { return tx.SaveToolDefinitions([]models.ToolDefinition{changed}) })
		write(func(tx *store.Tx) error {
			got, err := tx.LockToolDefinition("paper", "read")
			require.Equal(t, changed, got)
			return err
		})
		err := db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.LockToolDefinition("paper", "nothing")
			return err
		})
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)

		write(func(tx *store.Tx) error { return tx.DeleteToolDefinitions("paper") })
		require.Equal(t, []models.ToolDefinition{other}, of(""))

		var many []models.ToolDefinition
		for n := range 10_000 { // as many as an upstream may have
			many = append(many, fresh("many", fmt.Sprintf("t%05d", n)))
		}
		write(func(tx *store.Tx) error { return tx.AddToolDefinitions(many) })
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
			ID: id(0, 1), At: begin, Door: "mcp", TokenID: "t1", Actor: "ada", AgentID: "nova", Server: "paper", Tool: "read", Class: models.ToolRead, Digest: "d",
			Outcome: models.ToolSucceeded, Duration: 1500 * time.Microsecond, Tokens: 12, TraceID: "trace",
		}
		two := one
		two.ID, two.Tool, two.Outcome, two.Error, two.TokenID, two.AgentID = id(time.Hour, 2), "write", models.ToolFailed, "MCP_SERVER_ERROR", "t2", "ada"
		three := one
		three.ID, three.Server, three.ParentID, three.TaskID, three.Outcome = id(2*time.Hour, 3), "ink", one.ID, "task", models.ToolRefused
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.AddToolCalls([]models.ToolCall{two, one, three}) }))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.AddToolCalls([]models.ToolCall{one}) }), "twice is once")

		for rule, c := range map[string]struct {
			query models.ToolCallQuery
			want  []models.ToolCall
		}{
			"all, the newest first":   {models.ToolCallQuery{}, []models.ToolCall{three, two, one}},
			"no more than asked for":  {models.ToolCallQuery{Limit: 1}, []models.ToolCall{three}},
			"those before one":        {models.ToolCallQuery{Before: two.ID}, []models.ToolCall{one}},
			"of an agent":             {models.ToolCallQuery{AgentID: "ada"}, []models.ToolCall{two}},
			"of a token":              {models.ToolCallQuery{TokenID: "t1"}, []models.ToolCall{three, one}},
			"of a server":             {models.ToolCallQuery{Server: "ink"}, []models.ToolCall{three}},
			"of a tool of any server": {models.ToolCallQuery{Tool: "read"}, []models.ToolCall{three, one}},
			"of a task":               {models.ToolCallQuery{TaskID: "task"}, []models.ToolCall{three}},
			"of a run":                {models.ToolCallQuery{ParentID: one.ID}, []models.ToolCall{three}},
			"that ended so":           {models.ToolCallQuery{Outcome: models.ToolFailed}, []models.ToolCall{two}},
			"of all conditions":       {models.ToolCallQuery{Server: "paper", TokenID: "t1", Outcome: models.ToolSucceeded}, []models.ToolCall{one}},
			"none":                    {models.ToolCallQuery{Server: "paper", TokenID: "t3"}, nil},
		} {
			if c.query.Limit == 0 {
				c.query.Limit = 10
			}
			got, err := db.ToolCalls(t.Context(), c.query)
			require.NoError(t, err)
			require.Equal(t, c.want, got, rule)
		}

		purge := func(before time.Time, limit int) (n int64) {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) (err error) {
				n, err = tx.PurgeToolCalls(before, limit)
				return err
			}))
			return n
		}
		require.EqualValues(t, 0, purge(begin, 10), "what began then stays")
		require.EqualValues(t, 1, purge(begin.Add(2*time.Hour), 1), "no more than asked for, the oldest first")
		require.EqualValues(t, 1, purge(begin.Add(2*time.Hour), 10))
		left, err := db.ToolCalls(t.Context(), models.ToolCallQuery{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []models.ToolCall{three}, left)
	})
}

// TestEmitAll: many events at once are what as many single ones would be.
func TestEmitAll(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var drafts []models.EventDraft
		for n := range 2500 {
			drafts = append(drafts, models.EventDraft{Type: models.EventToolCalled, Key: "paper:read", Data: models.ToolCalled{CallID: fmt.Sprint(n)}})
		}
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.EmitAll(nil) }))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.EmitAll(drafts) }))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.Emit(models.EventToolFailed, "paper:read", models.ToolCalled{CallID: "last"})
		}))
		require.Error(t, db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.EmitAll([]models.EventDraft{{Type: models.EventToolCalled, Data: func() {}}})
		}), "what is no JSON is none of it")
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, _, err := tx.NumberAtMost(5000)
			return err
		}))
		all, err := db.EventsAfter(t.Context(), 0, 5000)
		require.NoError(t, err)
		require.Len(t, all, len(drafts)+1)
		for n, e := range all[:len(drafts)] {
			require.Equal(t, models.EventToolCalled, e.Type)
			require.Equal(t, "paper:read", e.Key)
			require.Equal(t, db.Now(), e.At)
			var data models.ToolCalled
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.Equal(t, fmt.Sprint(n), data.CallID, "in their order")
		}
		require.Equal(t, models.EventToolFailed, all[len(drafts)].Type)
	})
}
