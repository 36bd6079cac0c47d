package api

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"

	"comet/models"
)

const (
	defaultLimit  = 100
	maxLimit      = 1000
	maxOffset     = 10_000_000
	maxSearchText = 200
	maxCursor     = 2000
)

// agentQuery reads the parameters of a list of agents.
func agentQuery(r *http.Request) (models.AgentQuery, error) {
	q := newQuery(r, "sphere_id", "level", "frequency", "active", "parent_id", "capability", "q",
		"sort", "limit", "offset", "cursor", "total")
	out := models.AgentQuery{
		SphereID:     q.OptInt("sphere_id", models.MinSphere, models.MaxSphere),
		Level:        q.OptInt("level", int(models.LevelSystem), int(models.LevelAssistant)),
		FrequencyHz:  q.OptInt("frequency", 0, 999),
		Active:       q.OptBool("active"),
		ParentID:     q.OptString("parent_id", models.MaxIDLength),
		Capabilities: q.Strings("capability", 10, models.MaxCapabilityLength),
		Limit:        q.Int("limit", 1, maxLimit, defaultLimit),
		Offset:       q.Int("offset", 0, maxOffset, 0),
	}
	if text := q.OptString("q", maxSearchText); text != nil {
		out.Text = *text
	}
	sort := q.Enum("sort", "id", "id", "-id", "name", "-name", "level", "-level", "created_at", "-created_at")
	sort, out.Descending = strings.CutPrefix(sort, "-")
	out.Sort = models.AgentSort(sort)
	if text := q.OptString("cursor", maxCursor); text != nil {
		readCursor(q, &out, *text)
	}
	out.Count = out.After == nil
	if total := q.OptBool("total"); total != nil {
		out.Count = *total
	}
	return out, q.Err()
}

// cursor is what an opaque cursor holds: the last agent of a page and a
// fingerprint of the list it was a page of.
type cursor struct {
	ID    string `json:"i"`
	Name  string `json:"n,omitzero"`
	Level int    `json:"l,omitzero"`
	At    int64  `json:"t,omitzero"` // microseconds since 1970
	List  uint64 `json:"f"`
}

// cursorAfter names the place behind the last agent of a page.
func cursorAfter(q models.AgentQuery, last models.Agent) string {
	c := cursor{ID: last.ID, List: fingerprint(q)}
	switch q.Sort {
	case models.SortName:
		c.Name = last.Name
	case models.SortLevel:
		c.Level = int(last.Level)
	case models.SortCreatedAt:
		c.At = last.CreatedAt.UnixMicro()
	case models.SortID:
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "" // strings from the database are valid UTF-8
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func readCursor(q *query, out *models.AgentQuery, text string) {
	var c cursor
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	switch {
	case err != nil || c.ID == "" || !storable(c.ID+c.Name):
		q.Fail("cursor", "cursor", "cursor is not one this server gave out")
	case c.List != fingerprint(*out):
		q.Fail("cursor", "cursor", "cursor belongs to a list with other filters or another order")
	case q.Has("offset"):
		q.Fail("offset", "exclusive", "offset and cursor exclude each other")
	default:
		out.After = &models.AgentPosition{ID: c.ID, Name: c.Name, Level: c.Level, CreatedAt: time.UnixMicro(c.At).UTC()}
	}
}

// fingerprint tells lists with other filters or another order apart.
func fingerprint(q models.AgentQuery) uint64 {
	text, err := json.Marshal([]any{q.SphereID, q.Level, q.FrequencyHz, q.Active, q.ParentID, q.Capabilities, q.Text, q.Sort, q.Descending},
		json.Deterministic(true))
	if err != nil {
		return 0
	}
	return xxhash.Sum64(text)
}

// links makes the Link header of a page that has a next one (RFC 8288).
func links(r *http.Request, next string) string {
	values := r.URL.Query()
	values.Del("offset")
	values.Del("cursor")
	first := *r.URL
	first.RawQuery = values.Encode()
	values.Set("cursor", next)
	following := url.URL{Path: first.Path, RawQuery: values.Encode()}
	return "<" + following.RequestURI() + `>; rel="next", <` + (&url.URL{Path: first.Path, RawQuery: first.RawQuery}).RequestURI() + `>; rel="first"`
}
