/** The certificate of a key that nobody has. */
const CERTIFICATE = `
  MIIBfjCCASOgAwIBAgIUGm+XGK8EHabqdKu84HdQtnOAy3wwCgYIKoZIzj0EAwIwEzERMA8GA1UEAwwIaWRwLnRlc3QwIBcNMjYxMTIyMDEyMjI3
  WhgPMjEyNjEwMjkwMTIyMjdaMBMxETAPBgNVBAMMCGlkcC50ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAENZp23UTGiOgFwsqv8hYBnnC8
  UzAlwnA4zVSWdZQMiEfqJkx2CxN6T3ggfd97hD/aMrA/llObJfuNts7KVSN4rqNTMFEwHQYDVR0OBBYEFNR7rnCdu23a8VAv/r8XlhlDvgqqMB8G
  A1UdIwQYMBaAFNR7rnCdu23a8VAv/r8XlhlDvgqqMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAORbdT9fiJX5Qwim6bAOM6sO
  PpPke0DdIz1RFBeTZD5NAiEA1OBnFZQJIkbmENxwhQOkIvThsU6Gud1Y5Umz3tUH1iU=`

const METADATA = 'urn:oasis:names:tc:SAML:2.0:metadata'

export const keyDescriptor = (certificate = CERTIFICATE, attributes = 'use="signing"') => `
    <md:KeyDescriptor ${attributes}>
      <ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#">
        <ds:X509Data><ds:X509Certificate>${certificate}</ds:X509Certificate></ds:X509Data>
      </ds:KeyInfo>
    </md:KeyDescriptor>`

export const signOn = (location = 'https://idp.example.com/sso') => `
    <md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="${location}"/>`

interface Parts {
  /** Text before the root. */
  prolog?: string
  attributes?: string
  /** The content of the identity provider's role. */
  role?: string
  /** Text beside the role. */
  beside?: string
}

/** The metadata of an identity provider. */
export const metadataOf = (entityId: string, parts: Parts = {}) => {
  const { prolog = '<?xml version="1.0" encoding="UTF-8"?>', attributes = '', beside = '' } = parts
  const { role = keyDescriptor() + signOn() } = parts
  return `${prolog}
<md:EntityDescriptor xmlns:md="${METADATA}" entityID="${entityId}" ${attributes}>
  <md:IDPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">${role}
  </md:IDPSSODescriptor>${beside}
</md:EntityDescriptor>`
}
