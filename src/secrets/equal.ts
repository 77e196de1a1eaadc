/** Takes as long whatever they have in common, so that a secret cannot be guessed piece by piece. */
export function isSameSecret(given: string, secret: string): boolean {
  if (given.length !== secret.length) return false
  let difference = 0
  for (let i = 0; i < given.length; i += 1) difference |= given.charCodeAt(i) ^ secret.charCodeAt(i)
  return difference === 0
}
