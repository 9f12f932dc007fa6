package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/secret"
)

// send sends one event to a server and returns what came.
func send(t *testing.T, kind string, e Event, answer func(int, http.ResponseWriter, *http.Request)) (request, error) {
	t.Helper()
	r := receive(t, answer)
	d := to(kind, r)
	d.Headers = map[string]secret.Text{"X-Team": secret.New("blue")}
	l := newLab(t, d, host(r))
	err := l.Send(t.Context(), d, e)
	return r.await(t, 1)[0], err
}

// hostile is text in all the tongues of those who show it.
const hostile = "<!channel> <https://evil.example|click> *bold* [here](https://evil.example) {{DATE(2026)}} ${x} & <at>all</at> \u202egnp.exe \x1b[31m"

func TestGenericIsSignedAsFluxDoes(t *testing.T) {
	got, err := send(t, HMAC, event(1).plain(map[string]string{"summary": "prod", "plan": "not this"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(canary+"-token"))
	mac.Write(got.body)
	if h, want := got.header.Get("X-Signature"), "sha256="+hex.EncodeToString(mac.Sum(nil)); h != want {
		t.Errorf("X-Signature is %q, want %q", h, want)
	}
	if got.header.Get("Authorization") != "" || got.header.Get("X-Team") != "blue" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the headers are %v", got.header)
	}
	var body map[string]any
	if err := json.Unmarshal(got.body, &body); err != nil {
		t.Fatal(err)
	}
	object, facts := body["involvedObject"].(map[string]any), body["metadata"].(map[string]any)
	if object["kind"] != "Terraform" || object["apiVersion"] != "infra.contrib.fluxcd.io/v1alpha2" || body["timestamp"] != "2026-03-01T12:00:00Z" ||
		body["severity"] != "info" || body["reportingController"] != "terrier" || body["reason"] != "TerraformPlanSucceed" {
		t.Errorf("the body is %s", got.body)
	}
	if facts["plan"] != "plan-main-1" || facts["commit"] != "sha1:abc" || facts["summary"] != "prod" || facts["other.example/x"] != "y" {
		t.Errorf("metadata is %v: what the event says wins, without its prefixes", facts)
	}
}

func TestSlackShowsTextAndNothingElse(t *testing.T) {
	e := event(1)
	e.Severity, e.Message, e.Metadata = Error, hostile, map[string]string{"plan": hostile}
	got, err := send(t, Slack, e, func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"ok":true}`)) })
	if err != nil {
		t.Fatal(err)
	}
	var body slackBody
	if err := json.Unmarshal(got.body, &body); err != nil {
		t.Fatal(err)
	}
	if got.header.Get("Authorization") != "Bearer "+canary+"-token" || body.Markdown || body.Parse != "none" || body.LinkNames || len(body.Attachments) != 1 || body.Attachments[0].Color != "danger" {
		t.Errorf("the message is %+v", body)
	}
	texts := []string{body.Text, body.Attachments[0].Fallback}
	for _, b := range body.Attachments[0].Blocks {
		for _, x := range append(append([]slackText{}, b.Fields...), b.Elements...) {
			texts = append(texts, x.Text)
			if x.Type != "plain_text" {
				t.Errorf("a text is %s", x.Type)
			}
		}
		if b.Text != nil {
			texts = append(texts, b.Text.Text)
			if b.Text.Type != "plain_text" {
				t.Errorf("a text is %s", b.Text.Type)
			}
		}
		if len(b.Fields) > 10 {
			t.Errorf("a block has %d fields, and Slack takes ten", len(b.Fields))
		}
	}
	for _, text := range texts {
		if strings.ContainsAny(text, "<>\x1b\u202e") || len([]rune(text)) > 3000 {
			t.Errorf("a text is %q", text)
		}
	}
	if all := strings.Join(texts, "\n"); !strings.Contains(all, "&lt;!channel&gt;") || strings.Contains(string(got.body), canary) {
		t.Errorf("the texts are %s", all)
	}
}

func TestSlackThatRefusesWithOKIsHeard(t *testing.T) {
	for said, want := range map[string]bool{`{"ok":false,"error":"channel_not_found"}`: true, `{"ok":false,"error":"ratelimited"}`: false} {
		_, err := send(t, Slack, event(1), func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(said)) })
		if err == nil || final(err) != want {
			t.Errorf("%s gave %v, final %v; want final %v", said, err, final(err), want)
		}
	}
}

func TestTeamsShowsTextAndNothingElse(t *testing.T) {
	e := event(1)
	e.Message, e.Metadata = hostile, map[string]string{"plan": hostile}
	got, err := send(t, Teams, e, status(http.StatusAccepted))
	if err != nil {
		t.Fatal(err)
	}
	var body teamsBody
	if err := json.Unmarshal(got.body, &body); err != nil {
		t.Fatal(err)
	}
	if body.Type != "message" || len(body.Attachments) != 1 || body.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" {
		t.Fatalf("the message is %s", got.body)
	}
	card := body.Attachments[0].Content
	if card.Type != "AdaptiveCard" || card.Version != "1.4" || len(card.Body) < 4 {
		t.Errorf("the card is %+v", card)
	}
	seen := false
	for _, b := range card.Body {
		if b.Type != "RichTextBlock" {
			t.Errorf("a block is %s, which may read Markdown", b.Type)
		}
		for _, r := range b.Inlines {
			seen = seen || strings.Contains(r.Text, "[here](https://evil.example)")
			if r.Type != "TextRun" || strings.Contains(r.Text, "{{") || strings.Contains(r.Text, "${") || strings.ContainsAny(r.Text, "\x1b\u202e") {
				t.Errorf("a text is %+v", r)
			}
		}
	}
	if !seen || strings.Contains(string(got.body), canary) || got.header.Get("Authorization") != "" || len(got.body) > 28<<10 {
		t.Errorf("the message is %s", got.body)
	}
}

func TestLongTextIsCut(t *testing.T) {
	if got := shown(strings.Repeat("é", 10), 3); got != "ééé…" {
		t.Errorf("shown() = %q", got)
	}
}
