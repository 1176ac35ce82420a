"""From a model and chats to a model that chats: what `llamita finetune` does."""
