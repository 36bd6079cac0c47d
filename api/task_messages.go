package api

import (
	"net/http"
	"strconv"
	"time"

	"comet/models"
)

// loggedMessageView is a line of PROTOCOL_V5 that was said.
type loggedMessageView struct {
	ID     string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8060"`
	At     time.Time `json:"at" example:"2026-01-10T15:30:00Z"`
	Ctx    string    `json:"ctx" example:"S1"`
	TID    string    `json:"tid" example:"T1"`
	Number int       `json:"number" example:"12"` // That of the message, without its M; each end counts its own in a CTX.
	From   string    `json:"from" example:"W1"`
	To     string    `json:"to" example:"O1"`
	Type   string    `json:"type" example:"S"`
	State  *string   `json:"state" example:"D"`
	Err    *string   `json:"err" example:"E31"`
	Depth  int       `json:"depth" example:"1"`
	Data   string    `json:"data" example:"pid=M5;result=42"`
	// The message that it names as its cause, without its M; null where it names none.
	PID *int `json:"pid" example:"5"`
	// The line that caused it: the one that pid means, or the one that it answers; null
	// where that is not known.
	ParentID *string `json:"parent_id" example:"01890a5d-ac96-774b-bcce-b302099a805f"`
}

// loggedMessageList is one page of the lines about a task, the first one first.
type loggedMessageList struct {
	Messages   []loggedMessageView `json:"messages"`
	NextCursor string              `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// listTaskMessages lists what was said about a task.
//
//	@Summary		List the lines about a task
//	@Description	What was said about the task in PROTOCOL_V5 (§10), by its agents, by who asked and by comet, in the order in which it was said: every line that was taken, in both directions. `parent_id` leads from a line to the one that caused it. Of a part that was handed off they are the lines of its task that are as deep, or deeper. A task that nobody spoke of in this protocol has none; lines are kept for as long as tasks that have ended are.
//	@ID				listTaskMessages
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			task_id			path	string	true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			limit			query	int		false	"How many lines a page has"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins: the `next_cursor` of the one before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	loggedMessageList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or malformed"
//	@Failure		404	"No such task"
//	@Router			/api/v1/tasks/{task_id}/messages [get]
func (s *Server) listTaskMessages(w http.ResponseWriter, r *http.Request) error {
	id, err := decodeID(r, "task_id")
	if err != nil {
		return err
	}
	q := newQuery(r, "limit", "cursor")
	limit, after := q.Int("limit", 1, maxLimit, defaultLimit), q.idCursor()
	if err := q.Err(); err != nil {
		return err
	}
	t, err := s.visibleTask(r, id)
	if err != nil {
		return err
	}
	lines, err := s.messages.ByTask(r.Context(), t, after, limit+1) // one more tells whether there is a next page
	if err != nil {
		return err
	}
	var page loggedMessageList
	if len(lines) > limit {
		lines = lines[:limit]
		page.NextCursor = opaque(lines[limit-1].ID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Messages = make([]loggedMessageView, len(lines))
	for i, l := range lines {
		page.Messages[i] = newLoggedMessageView(l)
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

func newLoggedMessageView(l models.LoggedMessage) loggedMessageView {
	return loggedMessageView{
		ID: l.ID, At: l.At, Ctx: models.ContextName(l.Context), TID: "T" + strconv.Itoa(l.Task), Number: l.Number, From: l.From, To: l.To,
		Type: l.Type, State: orNull(l.State), Err: orNull(l.Code), Depth: l.Depth, Data: l.Data, PID: orNull(l.Parent), ParentID: orNull(l.ParentID),
	}
}
