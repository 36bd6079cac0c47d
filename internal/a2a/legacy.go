package a2a

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/wire"
)

// Version 0.3 differs from 1.0 in the names of methods and states, and in that messages, parts and events have a kind.

// legacyMethods are the operations of the methods of 0.3.
var legacyMethods = map[string]string{ //nolint:gochecknoglobals // a constant table
	"message/send": "SendMessage", "message/stream": "SendStreamingMessage", "tasks/get": "GetTask", "tasks/cancel": "CancelTask",
	"tasks/resubscribe": "SubscribeToTask", "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
	"tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
	"tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
}

// fromLegacy returns the operation of a method of 0.3, and its parameters as 1.0 has them.
func fromLegacy(method string, params json.RawMessage) (operation string, out []byte, err error) {
	operation, known := legacyMethods[method]
	switch {
	case !known:
		return "", nil, fail(a2a.ErrMethodNotFound, "version 0.3, which is that of requests without the header A2A-Version, has no method %q", method)
	case strings.HasPrefix(method, "tasks/pushNotificationConfig/"):
		out, err = fromLegacyPush(params)
		return operation, out, err
	case operation != "SendMessage" && operation != "SendStreamingMessage":
		return operation, params, nil
	}
	in, err := decode[struct {
		Message       json.RawMessage `json:"message"`
		Configuration struct {
			Blocking      *bool       `json:"blocking"`
			HistoryLength *int        `json:"historyLength"`
			Push          *pushConfig `json:"pushNotificationConfig"`
		} `json:"configuration"`
		Metadata map[string]any `json:"metadata"`
	}](params)
	if err != nil {
		return "", nil, err
	}
	var given struct{ Parts []struct{ Kind string } }
	_ = json.Unmarshal(in.Message, &given) // readMessage reports another type
	for i, p := range given.Parts {
		if !slices.Contains([]string{"text", "file", "data"}, p.Kind) {
			return "", nil, fail(a2a.ErrInvalidParams, "message.parts[%d].kind must be text, file or data in version 0.3", i)
		}
	}
	var message json.RawMessage // null for none
	if in.Message != nil {
		message = wire.Convert(in.Message, false)
	}
	configuration := map[string]any{"returnImmediately": in.Configuration.Blocking != nil && !*in.Configuration.Blocking}
	if in.Configuration.HistoryLength != nil {
		configuration["historyLength"] = in.Configuration.HistoryLength
	}
	if in.Configuration.Push != nil {
		configuration["taskPushNotificationConfig"] = in.Configuration.Push
	}
	out, err = json.Marshal(map[string]any{"message": message, "configuration": configuration, "metadata": in.Metadata})
	return operation, out, err
}

// toLegacy returns a result as 0.3 has it.
func toLegacy(v any) any {
	switch v := v.(type) {
	case a2a.StreamResponse:
		return toLegacy(v.Event)
	case a2a.Event:
		text, _ := json.Marshal(v) // its data is JSON
		return json.RawMessage(wire.Convert(text, true))
	case *pushConfig:
		return v.legacy()
	case *pushList:
		all := []any{}
		for _, c := range v.Configs {
			all = append(all, c.legacy())
		}
		return all
	}
	return v
}

// legacy returns the configuration as 0.3 has it.
func (c *pushConfig) legacy() any {
	config := *c
	config.TaskID = ""
	if config.Authentication != nil {
		config.Authentication = &pushAuth{Schemes: []string{config.Authentication.Scheme}}
	}
	return map[string]any{"taskId": c.TaskID, "pushNotificationConfig": config}
}

// fromLegacyPush returns the parameters of an operation on configurations as 1.0 has them.
func fromLegacyPush(params json.RawMessage) ([]byte, error) {
	in, err := decode[struct {
		TaskID   string      `json:"taskId"`
		Config   *pushConfig `json:"pushNotificationConfig"`
		ID       string      `json:"id"` // of the task
		ConfigID string      `json:"pushNotificationConfigId"`
	}](params)
	switch {
	case err != nil:
		return nil, err
	case in.Config != nil:
		in.Config.TaskID = in.TaskID
		return json.Marshal(in.Config)
	}
	return json.Marshal(pushRequest{cmp.Or(in.ID, in.TaskID), in.ConfigID})
}
