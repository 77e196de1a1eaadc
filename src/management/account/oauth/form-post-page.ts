import { html } from 'hono/html'
import type { Answer } from '../../kernel/route.ts'
import { pagePolicy } from './page-policy.ts'

/** Renders the page of OAuth 2.0 Form Post Response Mode, by which the response does not appear in a URL. */
export async function formPostPage(uri: string, parameters: URLSearchParams): Promise<Answer> {
  const nonce = crypto.randomUUID()
  const fields = Array.from(parameters, ([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)
  const body = await html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Back to the application</title>
</head>
<body>
<form method="post" action="${uri}">
${fields}
<noscript><button>Continue</button></noscript>
</form>
<script nonce="${nonce}">document.forms[0].submit()</script>
</body>
</html>
`
  return { status: 200, headers: { 'content-security-policy': pagePolicy('script-src', nonce) }, body: String(body) }
}
