package api

import (
	"net/http"

	"comet/internal/validate"
	"comet/models"
)

// taskCancellation is the body of a request to end a task.
type taskCancellation struct {
	// Why, for whoever looks at the task.
	Reason *string `json:"reason" validate:"omitnil,text,max=500" example:"not needed any more" maxLength:"500" extensions:"x-nullable"`
}

// cancelTask ends a task.
//
//	@Summary		Cancel a task
//	@Description	Ends a task that has not ended; the agent that has it is told. A cancelled task stays as it is. A token cancels what it asked for itself, one with `admin` every task.
//	@ID				cancelTask
//	@Tags			tasks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			task_id			path	string			true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			Idempotency-Key	header	string			false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	taskCancellation	false	"Why"
//	@Success		200	{object}	taskView	"It is cancelled"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Location
//	@Header			200	{string}	Idempotency-Replayed
//	@Failure		400	"The reason is malformed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or another token asked for the task"
//	@Failure		404	"No such task"
//	@Failure		409	"It has ended otherwise, `state` tells how; or the key was used with another request"
//	@Router			/api/v1/tasks/{task_id}/cancel [post]
func (s *Server) cancelTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_id")
	if err != nil {
		return err
	}
	var d taskCancellation
	body, err := s.decodeOptional(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.once(r, body, s.renderTask)
	if err != nil {
		return err
	}
	if err := validate.Struct(d).Err(); err != nil {
		return err
	}
	if err := s.changeable(r, id); err != nil {
		return err
	}
	reason := "cancelled by " + caller(r).Name
	if orZero(d.Reason) != "" {
		reason = *d.Reason
	}
	t, err := s.work.Cancel(r.Context(), id, reason, once)
	if err != nil || s.replayed(w, once) {
		return err
	}
	return s.writeChanged(w, t)
}

// taskReply is the answer to an agent's question.
type taskReply struct {
	Reply *string `json:"reply" validate:"required,min=1,text,max=16384" example:"2026" minLength:"1" maxLength:"16384"`
}

// replyToTask answers an agent's question.
//
//	@Summary		Answer a task's agent
//	@Description	Tells the agent what it asked back (`question` of the task), and its work goes on. A token answers for what it asked for itself, one with `admin` for every task.
//	@ID				replyToTask
//	@Tags			tasks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			task_id	path	string	true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			body	body	taskReply	true	"The answer"
//	@Success		200	{object}	taskView	"The agent is told"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Location
//	@Failure		400	"The answer is missing or malformed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or another token asked for the task"
//	@Failure		404	"No such task"
//	@Failure		409	"It waits for no answer; `state` tells where it stands"
//	@Router			/api/v1/tasks/{task_id}/reply [post]
func (s *Server) replyToTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_id")
	if err != nil {
		return err
	}
	var d taskReply
	if _, err := s.decode(w, r, &d); err != nil {
		return err
	}
	if err := validate.Struct(d).Err(); err != nil {
		return err
	}
	if err := s.changeable(r, id); err != nil {
		return err
	}
	t, err := s.work.Reply(r.Context(), id, *d.Reply)
	if err != nil {
		return err
	}
	return s.writeChanged(w, t)
}

// writeChanged answers with a task that was changed.
func (s *Server) writeChanged(w http.ResponseWriter, t models.Task) error {
	answer, err := s.renderTask(t)
	if err == nil {
		s.writeAnswer(w, answer)
	}
	return err
}

func (s *Server) renderTask(result any) (models.StoredResponse, error) {
	return s.taskAnswer(newTaskView(result.(models.Task)), http.StatusOK)
}
