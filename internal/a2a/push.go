package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
	rows "comet/store/a2a"
	"comet/webhooks"
)

// A push notification is a delivery of a webhook (docs/adr/0060-push-notifications-are-webhooks.md): package webhooks
// implements the order, the retries and the limits, and Render makes the bodies.

// The formats of the webhooks: the versions of A2A.
const (
	pushFormat       = "a2a"
	legacyPushFormat = "a2a-0.3"
)

// PushedEvents are the events that are pushed, for webhooks.Options: those that change the A2A form of a task.
func PushedEvents() []models.EventType {
	return []models.EventType{
		events.TaskCreated, events.TaskAssigned, events.TaskProgress, events.TaskQuestion, events.TaskReplied, events.TaskSubtask,
		events.TaskCompleted, events.TaskFailed, events.TaskCancelled,
		workflow.EventStepEnded, workflow.EventPaused, workflow.EventResumed, workflow.EventEnded,
	}
}

// tokenHeader is the header with the token of a configuration.
const tokenHeader = "X-A2A-Notification-Token" //nolint:gosec // the name of a header

// maxConfigID is the longest id of a configuration, in bytes.
const maxConfigID = 128

// pushConfig is a configuration of push notifications (A2A 1.0 §4.3.1).
type pushConfig struct {
	Tenant         string    `json:"tenant,omitempty"`
	ID             string    `json:"id,omitempty"`
	TaskID         string    `json:"taskId,omitempty"`
	URL            string    `json:"url"`
	Token          string    `json:"token,omitempty"`
	Authentication *pushAuth `json:"authentication,omitempty"`
}

// pushAuth is the authentication of push notifications. Version 0.3, and an example of 1.0, have a list of schemes.
type pushAuth struct {
	Scheme      string   `json:"scheme,omitempty"`
	Schemes     []string `json:"schemes,omitempty"`
	Credentials string   `json:"credentials,omitempty"`
}

// createPushRequest is the request of CreateTaskPushNotificationConfig. The SDK for Go puts the configuration into a member.
type createPushRequest struct {
	pushConfig
	Config *pushConfig `json:"config"`
}

// pushRequest is the request of the other operations on configurations.
type pushRequest struct {
	TaskID string `json:"taskId"`
	ID     string `json:"id"`
}

// pushList is the response of ListTaskPushNotificationConfigs. It has one page.
type pushList struct {
	Configs       []*pushConfig `json:"configs"`
	NextPageToken string        `json:"nextPageToken"`
}

// draft returns the webhook of a configuration.
func (s *service) draft(by sender, c pushConfig) (*webhooks.TaskDraft, error) {
	if len(c.ID) > maxConfigID || !isPrintable(c.ID) {
		return nil, fail(a2a.ErrInvalidParams, "the id of a push notification configuration must have at most %d printable characters", maxConfigID)
	} else if c.URL == "" {
		return nil, fail(a2a.ErrInvalidParams, "the url of a push notification configuration is required")
	}
	d := &webhooks.TaskDraft{ConfigID: c.ID, URL: c.URL, Headers: map[string]string{}, Format: pushFormat}
	if by.legacy {
		d.Format = legacyPushFormat
	} else if d.ConfigID == "" {
		d.ConfigID = uuid.NewString()
	}
	if c.Token != "" {
		d.Headers[tokenHeader] = c.Token
	}
	if c.Authentication != nil {
		scheme := cmp.Or(append([]string{c.Authentication.Scheme}, c.Authentication.Schemes...)...)
		if scheme == "" || strings.ContainsAny(scheme, " \t") {
			return nil, fail(a2a.ErrInvalidParams, "authentication.scheme must be the name of an HTTP authentication scheme, such as Bearer")
		}
		d.Headers["Authorization"] = strings.TrimSpace(scheme + " " + c.Authentication.Credentials)
	}
	return d, s.Webhooks.CheckTask(*d)
}

// setPush stores the configuration of a message or a request in the transaction, nil for none.
func (s *service) setPush(tx *store.Tx, by sender, taskID string, ended bool, d *webhooks.TaskDraft) error {
	if d == nil {
		return nil
	}
	named := *d
	named.ConfigID = cmp.Or(named.ConfigID, taskID) // in version 0.3, that of a configuration without an id
	return s.Webhooks.SetTask(tx, by.Principal, taskID, ended, named)
}

// createPush stores a configuration, and replaces one with the same id.
func (s *service) createPush(ctx context.Context, by sender, req createPushRequest) (*pushConfig, error) {
	c := req.pushConfig
	if req.Config != nil {
		c = *req.Config
		c.TaskID = cmp.Or(c.TaskID, req.TaskID)
	}
	f, err := s.findOwn(ctx, by.Principal, c.TaskID)
	if err != nil {
		return nil, err
	}
	d, err := s.draft(by, c)
	if err != nil {
		return nil, err
	}
	d.ConfigID = cmp.Or(d.ConfigID, f.id())
	err = s.Store.Write(ctx, func(tx *store.Tx) error {
		ended, err := rows.LockEnded(tx, f.id(), f.ended())
		if err == nil {
			_, err = f.stored(tx)
		}
		if err != nil {
			return err
		}
		return s.setPush(tx, by, f.id(), ended, d)
	})
	if err != nil {
		return nil, err
	}
	return s.getPush(ctx, by, pushRequest{f.id(), d.ConfigID})
}

// stored returns the row of a task, which it adds for a task that was requested over another API.
func (f found) stored(tx *store.Tx) (rows.Task, error) {
	if f.row.ID != "" {
		return f.row, nil
	}
	t := rows.Task{ID: f.id(), Owner: f.owner(), ContextID: f.contextID(), CreatedAt: f.core.CreatedAt, UpdatedAt: tx.Now()}
	return t, rows.Add(tx, t)
}

// listPush returns the configurations of a task.
func (s *service) listPush(ctx context.Context, by sender, taskID string) (*pushList, error) {
	f, err := s.findOwn(ctx, by.Principal, taskID)
	if err != nil {
		return nil, err
	}
	out := &pushList{Configs: []*pushConfig{}}
	hooks, err := s.Webhooks.OfTask(ctx, f.id())
	for _, hook := range hooks {
		out.Configs = append(out.Configs, newPushConfig(hook))
	}
	return out, err
}

// newPushConfig returns the configuration of a webhook, without its secrets.
func newPushConfig(hook models.Webhook) *pushConfig {
	out := &pushConfig{ID: hook.ConfigID, TaskID: *hook.TaskID, URL: hook.URL}
	if scheme, _, _ := strings.Cut(hook.Headers["Authorization"], " "); scheme != "" {
		out.Authentication = &pushAuth{Scheme: scheme}
	}
	return out
}

// getPush returns a configuration, in version 0.3 without an id the first one.
func (s *service) getPush(ctx context.Context, by sender, req pushRequest) (*pushConfig, error) {
	all, err := s.listPush(ctx, by, req.TaskID)
	if err != nil {
		return nil, err
	}
	for _, c := range all.Configs {
		if c.ID == req.ID || by.legacy && req.ID == "" {
			return c, nil
		}
	}
	return nil, fail(a2a.ErrTaskNotFound, "the task %s has no push notification configuration %q", req.TaskID, req.ID)
}

// deletePush deletes a configuration, if the task has it.
func (s *service) deletePush(ctx context.Context, by sender, req pushRequest) error {
	f, err := s.findOwn(ctx, by.Principal, req.TaskID)
	if err != nil {
		return err
	}
	hooks, err := s.Webhooks.OfTask(ctx, f.id())
	for _, hook := range hooks {
		if err == nil && hook.ConfigID == req.ID {
			err = s.Webhooks.Delete(ctx, by.Principal, hook.ID, nil)
		}
	}
	if errs.Is(err, errs.NotFound) { // another request has deleted it
		err = nil
	}
	return err
}

// push executes an operation on configurations of push notifications.
func (s *service) push(ctx context.Context, by sender, operation string, params []byte) (any, error) {
	if operation == "CreateTaskPushNotificationConfig" {
		req, err := decode[createPushRequest](params)
		if err != nil {
			return nil, err
		}
		return s.createPush(ctx, by, req)
	}
	req, err := decode[pushRequest](params)
	switch {
	case err != nil:
		return nil, err
	case operation == "GetTaskPushNotificationConfig":
		return s.getPush(ctx, by, req)
	case operation == "ListTaskPushNotificationConfigs":
		return s.listPush(ctx, by, req.TaskID)
	}
	return nil, s.deletePush(ctx, by, req)
}

// Render returns the body of a push notification and its media type, for webhooks.Options: the update that an event of the task
// reports, the task at its end, and in version 0.3 always the task. It returns errs.Unauthenticated if the token that made the
// configuration is no longer valid.
func (s *service) Render(ctx context.Context, hook models.Webhook, d models.Delivery) (body []byte, mediaType string, err error) {
	if !slices.Contains(PushedEvents(), d.Type) || hook.TaskID == nil {
		return nil, "", errs.New(errs.InvalidRequest, "the event %s has no form in A2A", d.Type)
	}
	if _, err = s.Store.Tokens(ctx).Get(hook.TokenID); err == nil {
		_, err = s.Auth.Standing(ctx, models.Principal{TokenID: hook.TokenID})
	} else if errs.Is(err, errs.NotFound) { // a JWT, which is not stored
		err = nil
	}
	if err != nil {
		return nil, "", err
	}
	e, err := s.pushed(ctx, *hook.TaskID, hook.Format == legacyPushFormat, d)
	if err != nil {
		return nil, "", err
	}
	var v any = a2a.StreamResponse{Event: e}
	if mediaType = "application/a2a+json"; hook.Format == legacyPushFormat {
		v, mediaType = toLegacy(e), "application/json"
	}
	body, err = json.Marshal(v)
	return body, mediaType, err
}

// pushed returns the body of a delivery about a task.
func (s *service) pushed(ctx context.Context, taskID string, whole bool, d models.Delivery) (a2a.Event, error) {
	var data events.TaskData
	f, err := s.load(ctx, models.System(), taskID)
	if err != nil {
		return nil, err
	}
	e, update := models.Event{Type: d.Type, Key: d.Key, At: d.EventAt, Data: d.Data}, &a2a.TaskStatusUpdateEvent{}
	if f.flow != nil {
		var change workflow.EventData
		if err = json.Unmarshal(d.Data, &change); err == nil {
			update, err = s.workflowUpdate(ctx, f, e, change)
		}
	} else if err = json.Unmarshal(d.Data, &data); err == nil {
		update = f.update(e, data)
	}
	if err != nil {
		return nil, err
	}
	if update.Status.State.Terminal() {
		return s.view(ctx, f, shown{history: new(0), artifacts: true})
	}
	if whole {
		return &a2a.Task{ID: update.TaskID, ContextID: update.ContextID, Status: update.Status}, nil
	}
	return update, nil
}
