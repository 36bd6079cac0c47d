package genesis_test

import (
	"bufio"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"comet/internal/wire/genesis"
)

// TestMain runs the tests, or serves tools/genesis-verify: with COMET_GENESIS=sign it prints signed
// messages, with COMET_GENESIS=forms the forms of the JSON values that it reads.
func TestMain(m *testing.M) {
	out := bufio.NewWriter(os.Stdout)
	var err error
	switch os.Getenv("COMET_GENESIS") {
	case "sign":
		err = printSigned(out)
	case "forms":
		err = printForms(os.Stdin, out)
	default:
		m.Run()
		return
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		panic(err)
	}
}

// printSigned prints messages of each type and with each payload, signed in both profiles, one per line.
func printSigned(out io.Writer) error {
	key := ed25519.NewKeyFromSeed([]byte("comet comet comet comet comet 32"))
	for _, profile := range []genesis.Profile{genesis.ProfileV1, genesis.ProfileJCS} {
		for _, m := range outgoing() {
			if err := m.Sign(key, profile); err != nil {
				return err
			}
			text, err := m.Format()
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(out, "%s\n", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// printForms reads JSON values, each as a JSON string on one line, and prints for each a line with
// what JavaScript prints and one with the form JCS, or - if it has none.
func printForms(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var value string
		if err := json.Unmarshal(lines.Bytes(), &value); err != nil {
			return err
		}
		printed, err := genesis.JavaScript([]byte(value))
		if err != nil {
			return fmt.Errorf("%s: %w", value, err)
		}
		canonical, err := genesis.Canonical([]byte(`{"value":` + value + `}`))
		if err != nil {
			canonical = []byte("-")
		}
		if _, err := fmt.Fprintf(out, "%s\n%s\n", printed, canonical); err != nil {
			return err
		}
	}
	return lines.Err()
}

// outgoing returns messages that comet could send: one of each type, and a REQUEST with each payload that is hard to print.
func outgoing() []genesis.Message {
	around := func(body genesis.Body) genesis.Message {
		return genesis.Message{
			ID: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11", From: "nova", To: "data-analyst", CorrelationID: "corr-1",
			Timestamp: 1767225600123456789, Body: body,
		}
	}
	event := around(genesis.Event{
		EventType: "workflow.completed", EventName: "Workflow completed", Payload: []byte(`null`),
		Metadata: genesis.Metadata{SchemaVersion: "1", ContentType: "application/json"}, DeliveryGuarantee: genesis.AtLeastOnce,
	})
	event.To, event.CorrelationID = "", ""
	all := []genesis.Message{
		around(genesis.Response{RequestID: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a10", Status: genesis.Succeeded, Data: []byte(`{"b":1,"a":[1.50,"é<>&"]}`)}),
		around(genesis.Response{
			RequestID: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a10", Status: genesis.Failed, Confidence: new(1e-7), Sources: []string{}, ProcessingTimeMS: new(0.1),
			Error: &genesis.ErrorDetails{Code: "X", Message: "\u2028 \x7f", Details: []byte(`{"2":1,"1":2}`), Retryable: true},
		}),
		event,
		around(genesis.Failure{ErrorType: genesis.ErrorTimeout, ErrorCode: "TIMEOUT", Message: "“late”", RetryAfterMS: new(int64(5))}),
	}
	for _, payload := range payloads() {
		all = append(all, around(genesis.Request{
			Intent: "analyze_data", Confidence: 0.3, Payload: []byte(payload), Context: []byte(`{}`), Priority: genesis.Critical, TimeoutMS: 1,
			Entities: []genesis.Entity{{Type: "t", Value: "\t", Confidence: 1, EndOffset: new(int64(9007199254740991))}},
			Options:  genesis.Options{RequiresResponse: new(false), Stream: true},
		}))
	}
	return all
}

// payloads are JSON values that are hard to print. All of them have a form JCS.
func payloads() []string {
	return []string{
		`null`, `-0`, `1e21`, `1E+2`, `123456789012345678901234567890`, `0.1e-6`, `9007199254740993`, `5e-324`, `1.7976931348623157e308`,
		`"\u00e9\u2028\ud83d\ude00\/\u0008\u001F\u007f\"\\<>&"`, `"` + strings.Repeat("é", 100) + `"`,
		`{"b":1,"10":2,"9":3,"a":4,"01":5,"4294967294":6,"4294967295":7,"-1":8,"1.0":9,"__proto__":{"2":0,"1":1},"":10}`,
		`[[],{},[{"\u0062":[]}],true,false]`, `{"toJSON":1,"constructor":null,"\uD83D\uDE00":1,"\uff61":2}`,
	}
}
