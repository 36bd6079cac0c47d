// The functions signMessage and verifyMessage of the document “Genesis Nexus”, §Sécurité des
// Messages. Only the import of keys was added, because subtle.sign and subtle.verify do not accept bytes.
import { webcrypto as crypto } from "node:crypto";

const bytesToBase64 = (bytes) => Buffer.from(bytes).toString("base64");
const base64ToBytes = (text) => new Uint8Array(Buffer.from(text, "base64"));

export async function signMessage(message, privateKey) {
  // Payload à signer (exclut signature)
  const payload = {
    id: message.id,
    type: message.type,
    from: message.from,
    to: message.to,
    intent: message.intent,
    payload: message.payload,
    timestamp: message.timestamp
  }

  const encoder = new TextEncoder()
  const data = encoder.encode(JSON.stringify(payload))

  // Signer avec Ed25519
  const signature = await crypto.subtle.sign(
    'Ed25519',
    await crypto.subtle.importKey('pkcs8', privateKey, 'Ed25519', false, ['sign']),
    data
  )

  return bytesToBase64(new Uint8Array(signature))
}

export async function verifyMessage(message, publicKey) {
  const payload = {
    id: message.id,
    type: message.type,
    from: message.from,
    to: message.to,
    intent: message.intent,
    payload: message.payload,
    timestamp: message.timestamp
  }

  const encoder = new TextEncoder()
  const data = encoder.encode(JSON.stringify(payload))
  const signature = base64ToBytes(message.signature)

  return await crypto.subtle.verify(
    'Ed25519',
    await crypto.subtle.importKey('raw', publicKey, 'Ed25519', false, ['verify']),
    signature,
    data
  )
}
