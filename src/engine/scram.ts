/** Work factor for passwords that people choose. */
export const CHOSEN_PASSWORD_ITERATIONS = 4096
/** Enough for a random 128-bit secret, and saves the driver thousands of hash iterations per connection. */
export const RANDOM_PASSWORD_ITERATIONS = 1

const UTF8 = new TextEncoder()

/** The SCRAM-SHA-256 verifier that Postgres stores, so the password itself never reaches the cluster. */
export async function scramVerifier(password: string, iterations: number): Promise<string> {
  const salt = crypto.getRandomValues(new Uint8Array(16))
  const { storedKey, serverKey } = await scramKeys(password, salt, iterations)
  return `SCRAM-SHA-256$${iterations}:${base64(salt)}$${base64(storedKey)}:${base64(serverKey)}`
}

/** The two keys of a verifier (RFC 5802). */
export async function scramKeys(password: string, salt: Uint8Array<ArrayBuffer>, iterations: number) {
  const secret = UTF8.encode(applySaslPrep(password))
  const key = await crypto.subtle.importKey('raw', secret, 'PBKDF2', false, ['deriveBits'])
  const salted = await crypto.subtle.deriveBits({ name: 'PBKDF2', hash: 'SHA-256', salt, iterations }, key, 256)
  const storedKey = await crypto.subtle.digest('SHA-256', await sign(salted, 'Client Key'))
  return { storedKey, serverKey: await sign(salted, 'Server Key') }
}

async function sign(keyBytes: ArrayBuffer, text: string): Promise<ArrayBuffer> {
  const key = await crypto.subtle.importKey('raw', keyBytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign'])
  return await crypto.subtle.sign('HMAC', key, UTF8.encode(text))
}

function base64(bytes: ArrayBuffer | Uint8Array): string {
  return btoa(String.fromCharCode(...new Uint8Array(bytes)))
}

const SPACES = /[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000]/g
const REMOVED = /\u00ad|\u034f|\u1806|[\u180b-\u180d]|\u200c|\u200d|\u2060|[\ufe00-\ufe0f]|\ufeff/g
const PROHIBITED =
  /[\p{Cc}\p{Cs}\p{Co}\p{Cn}]|\u0340|\u0341|\u06dd|\u070f|\u180e|[\u200e\u200f\u2028-\u202e\u2061-\u2063\u206a-\u206f]|[\u2ff0-\u2ffb\ufff9-\ufffd]/u
/** Code points above the basic plane that Unicode 3.2 does not define; SASLprep prohibits them. */
const TOO_NEW =
  /[\u{10000}-\u{102ff}\u{10350}-\u{103ff}\u{10450}-\u{1cfff}\u{1d173}-\u{1d17a}\u{1d200}-\u{1d3ff}\u{1d800}-\u{1ffff}\u{2a6d7}-\u{2f7ff}\u{2fa1e}-\u{10ffff}]/u
const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u

/** Applies SASLprep as clients do, which use a password without changes if it is refused. */
function applySaslPrep(password: string): string {
  const mapped = password.replace(SPACES, ' ').replace(REMOVED, '')
  const refused = mapped === '' || PROHIBITED.test(mapped) || TOO_NEW.test(mapped) || mixesDirections(mapped)
  return refused ? password : mapped.normalize('NFKC')
}

function mixesDirections(text: string): boolean {
  if (!RIGHT_TO_LEFT.test(text)) return false
  const characters = [...text]
  const outer = [characters[0] ?? '', characters.at(-1) ?? '']
  return /\p{Script=Latin}/u.test(text) || !outer.every((character) => RIGHT_TO_LEFT.test(character))
}
