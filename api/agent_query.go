package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"

	"comet/internal/input"
	"comet/internal/registry"
	"comet/models"
)

const (
	maxOffset     = 10_000_000
	maxSearchText = 200
	maxCursor     = 2000
)

// agentQuery reads the query parameters of a list of agents.
func agentQuery(r *http.Request) (registry.AgentQuery, error) {
	q := newQuery(r, "sphere_id", "level", "frequency", "active", "parent_id", "capability", "q",
		"sort", "limit", "offset", "cursor", "total")
	out := registry.AgentQuery{
		SphereID:     q.OptInt("sphere_id", registry.MinSphere, registry.MaxSphere),
		Level:        q.OptInt("level", int(models.LevelSystem), int(models.LevelAssistant)),
		FrequencyHz:  q.OptInt("frequency", 0, 999),
		Active:       q.OptBool("active"),
		ParentID:     q.OptString("parent_id", input.MaxID),
		Capabilities: q.Strings("capability", 10, input.MaxCapability),
		Limit:        q.pageLimit(),
		Offset:       q.Int("offset", 0, maxOffset, 0),
		Text:         orZero(q.OptString("q", maxSearchText)),
	}
	sort := q.Enum("sort", "id", "id", "-id", "name", "-name", "level", "-level", "created_at", "-created_at")
	out.Sort, out.Descending = strings.CutPrefix(sort, "-")
	if key, ok := q.cursor(maxCursor); ok {
		readCursor(q, &out, key)
	}
	out.Count = out.After == nil
	if total := q.OptBool("total"); total != nil {
		out.Count = *total
	}
	return out, q.Err()
}

// cursor is the content of a cursor: the last agent of a page and the fingerprint of its list.
type cursor struct {
	ID    string `json:"i"`
	Name  string `json:"n,omitzero"`
	Level int    `json:"l,omitzero"`
	At    int64  `json:"t,omitzero"` // microseconds since 1970
	List  uint64 `json:"f"`
}

// agentCursor returns the cursor of the page after last.
func agentCursor(q registry.AgentQuery, last models.Agent) string {
	c := cursor{ID: last.ID, List: fingerprint(q)}
	switch q.Sort {
	case "name":
		c.Name = last.Name
	case "level":
		c.Level = int(last.Level)
	case "created_at":
		c.At = last.CreatedAt.UnixMicro()
	case "id":
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "" // cannot happen: strings from the database are valid UTF-8
	}
	return encodeCursor(string(text))
}

func readCursor(q *query, out *registry.AgentQuery, key string) {
	var c cursor
	err := json.Unmarshal([]byte(key), &c)
	switch {
	case err != nil || c.ID == "" || !storable(c.ID+c.Name):
		q.failCursor()
	case c.List != fingerprint(*out):
		q.Fail("cursor", "cursor", "cursor was issued for other filters or another order; start again without cursor")
	case q.Has("offset"):
		q.Fail("offset", "exclusive", "offset cannot be combined with cursor")
	default:
		out.After = &registry.AgentPosition{ID: c.ID, Name: c.Name, Level: c.Level, CreatedAt: time.UnixMicro(c.At).UTC()}
	}
}

// fingerprint identifies the filters and the order of a list.
func fingerprint(q registry.AgentQuery) uint64 {
	text, err := json.Marshal([]any{q.SphereID, q.Level, q.FrequencyHz, q.Active, q.ParentID, q.Capabilities, q.Text, q.Sort, q.Descending},
		json.Deterministic(true))
	if err != nil {
		return 0
	}
	return xxhash.Sum64(text)
}
