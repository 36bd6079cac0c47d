package main

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	cometPrefix  = "COMET_"
	paramPrefix  = "COMET_PARAM_"
	taskVariable = "COMET_TASK_ID="
	// maxVariable and maxVariables bound what is put into the environment, in bytes; the
	// system refuses to start a command with much more. The rest is on standard input.
	maxVariable  = 64 << 10
	maxVariables = 512 << 10
)

// inherited is what of the worker's environment its commands get: nothing of comet's own,
// be it a token, the address of a database, or what they could take for a task's. Some
// systems do not tell capitals from small letters.
func inherited(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return len(name) >= len(cometPrefix) && strings.EqualFold(name[:len(cometPrefix)], cometPrefix)
	})
}

// environment adds what a task's command is told.
func environment(base []string, w task) []string {
	env := append(slices.Clip(base),
		taskVariable+w.TaskID().String(), "COMET_REQUEST_ID="+w.RequestID().String(), "COMET_TRACE_ID="+w.TraceID().String(),
		"COMET_WORK_TYPE="+w.Type())
	parameters := w.Parameters()
	room := maxVariables
	for _, entry := range append([]string{"COMET_PARAMETERS=" + string(parameters)}, variables(parameters)...) {
		if len(entry) <= maxVariable && len(entry) <= room && strings.IndexByte(entry, 0) < 0 {
			env, room = append(env, entry), room-len(entry)
		}
	}
	return env
}

// variables are the parameters that are no object, array or null. Of several whose names
// come to the same the last counts.
func variables(parameters []byte) (entries []string) {
	dec := jsontext.NewDecoder(bytes.NewReader(parameters))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return nil
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return entries
		}
		variable := paramPrefix + variableName(name.String())
		switch dec.PeekKind() {
		case '"', '0', 't', 'f':
			value, err := dec.ReadToken()
			if err != nil {
				return entries
			}
			entries = append(entries, variable+"="+value.String())
		default:
			if dec.SkipValue() != nil {
				return entries
			}
		}
	}
	return entries
}

// variableName is a name in capitals, with _ for what a variable's name must not have.
func variableName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}
